"""Claims and settles on the worker's own loop.

A store is used from many loops, so its driver lives on a loop and a thread of its own (network/home.py). A worker that claims and settles
tens of thousands of jobs a second pays for that with the interpreter's lock, which the two threads hand to and fro. So it gets two
connections more, which belong to its loop; everything else, above all the renewal of leases, still goes through the store's thread.

Only single statements are sent from here. A handler that computes holds its loop up, and a transaction of several steps would be held open
with it, with locks that others wait for.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from mulligan.core.change import Change, Verdict, check_all_writable
from mulligan.core.contract import Ask, Claimed, Near
from mulligan.stores.postgres import careful, claim
from mulligan.stores.postgres.at_once import settle_at_once
from mulligan.stores.postgres.database import Database
from mulligan.stores.postgres.floors import Floors

T = TypeVar("T")
CONNECTIONS = 2  # one claims while the other settles


class Here(Protocol):
    """Runs a call on the caller's loop, with the deadline and the repeats of every call of the store."""

    async def __call__(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> T: ...


class InSteps(Protocol):
    """Settles a batch that one statement could not write, in the store's thread."""

    async def __call__(self, changes: Sequence[Change]) -> list[Verdict]: ...


class PostgresNear:
    """The near side of an open store. Belongs to the loop it was made on."""

    def __init__(
        self, store: Near, here: Here, in_steps: InSteps, announce: Callable[[], None], database: Database, grouped: set[str]
    ) -> None:
        self._store = store
        self._in_steps = in_steps
        self._announce = announce
        self._here = here
        self._database = database
        self._floors = Floors()
        self._grouped = grouped  # the queues the store knows to have groups

    async def claim(self, claim_id: str, owner: str, asks: Sequence[Ask], total: int, lease_us: int) -> Claimed:
        """Takes due jobs under a lease, or returns what an earlier claim of the same id still holds."""
        claimed = None
        if not careful.is_careful(asks, self._grouped):
            wish = claim.Wish(claim_id, owner, asks, total, lease_us)
            claimed = await self._here(lambda: claim.claim_at_once(self._database, self._floors, wish))
        # The store's own claim takes the steps that limits and groups need. One of the same id finds what was taken, and quarantines what
        # cannot be decoded.
        return await self._store.claim(claim_id, owner, asks, total, lease_us) if claimed is None else claimed

    async def settle(self, changes: Sequence[Change]) -> list[Verdict]:
        """Applies each change whose guard holds, in order; the others are refused, one by one."""
        check_all_writable(changes)
        verdicts = await self._here(lambda: settle_at_once(self._database, changes))
        if verdicts is None:
            # What was written of a batch of successes that is not all written is known to the steps by its settle_id.
            return await self._in_steps(changes)
        if any(verdict.status == "pending" for verdict in verdicts):
            self._announce()
        return verdicts

    async def close(self) -> None:
        """Lets go of its connections."""
        await self._database.pool.close()
