"""A worker process under limits: `python -m tests.processes.limited_server URL LEDGER SETTINGS`, until its standard input says stop.

Beside what its tasks note, it notes each job it has claimed, with the store's time of the claim, and each lease it has renewed: until
when, on the machine's clock, the job is certainly its own. With `sweeps` false it takes nobody's jobs over. `bug` in the settings plants
one, to show that the tests would see it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from mulligan import Job, Mulligan
from mulligan.core.change import Grip
from mulligan.core.contract import Ask, Claimed, Near, Renewal, WorkerInfo
from mulligan.core.limits import Bucket, Limit, Slots
from mulligan.policy.breaker import is_of_breaker
from mulligan.worker.board import Board
from tests.processes.ledger import Ledger
from tests.processes.limited_tasks import make_limited_app, mono_us, tell

Claim = Callable[[str, str, Sequence[Ask], int, int], Awaitable[Claimed]]


class Watched:
    """Stands between a worker and its store, and notes what the store has said."""

    def __init__(self, app: Mulligan, ledger: Ledger, bug: str) -> None:
        self._ledger = ledger
        self._bug = bug
        self._stretch = 1_000 if bug == "long leases" else 1
        self._shut: set[str] = set()
        self._ahead_us = -(10**18)  # the machine's clock is at least so far ahead of the store's
        store: Any = app.store
        self._renew, self._near = store.renew, store.near
        store.claim, store.renew, store.near = self._watched(store.claim), self._renewed, self._nearer

    def _watched(self, claim: Claim) -> Claim:
        async def watched(claim_id: str, owner: str, asks: Sequence[Ask], total: int, lease_us: int) -> Claimed:
            self._note_breakers(asks)
            sent_us = mono_us()
            asks = [replace(ask, limits=tuple(_with_bug(self._bug, ask.limits))) for ask in asks]
            claimed = await claim(claim_id, owner, asks, total, lease_us * self._stretch)
            self._ahead_us = max(self._ahead_us, sent_us - claimed.now_us)
            for job in claimed.jobs:
                facts = {
                    "queue": job.queue,
                    "task": job.task,
                    "lane": job.lane,
                    "key": job.concurrency_key,
                    "tenant": job.fair_key,
                    "on": job.depends_on,
                    "claimed_us": job.updated_at_us,
                    "until_us": job.updated_at_us + lease_us + self._ahead_us,
                }
                tell(self._ledger, "CLAIM", job.id, job.fence, **facts)
            return claimed

        return watched

    async def _nearer(self) -> Near | None:
        near: Any = await self._near()
        if near is not None:
            near.claim = self._watched(near.claim)
        return near  # type: ignore[no-any-return]

    async def _renewed(self, grips: Sequence[Grip], lease_us: int, worker: WorkerInfo | None = None) -> list[Renewal]:
        sent_us = mono_us()
        answers: list[Renewal] = await self._renew(grips, lease_us * self._stretch, worker)
        for answer in answers:
            if answer.held:
                tell(self._ledger, "HELD", answer.job_id, answer.fence, until_us=sent_us + lease_us)
            else:
                tell(self._ledger, "REFUSED", answer.job_id, answer.fence)
        return answers

    async def compare_clocks(self, now_us: Callable[[], Awaitable[int]]) -> None:
        """So often that one of the answers comes at once. Both clocks are of one machine, or go at the same pace."""
        for _ in range(5):
            sent_us = mono_us()
            self._ahead_us = max(self._ahead_us, sent_us - await now_us())

    def _note_breakers(self, asks: Sequence[Ask]) -> None:
        """Which downstreams this worker takes for shut, whenever that changes."""
        buckets = [limit for ask in asks for limit in ask.limits if isinstance(limit, Bucket) and is_of_breaker(limit)]
        shut = {bucket.value or "" for bucket in buckets if bucket.burst_u == 0}
        for name in sorted(shut ^ self._shut):
            tell(self._ledger, "SHUT" if name in shut else "LET", on=name)
        self._shut = shut


def _with_bug(bug: str, limits: Sequence[Limit]) -> list[Limit]:
    """The limits as a store with that bug would keep them."""
    if bug == "own slots":  # each process bounds what it runs itself, by its concurrency, and nobody counts them all
        return [limit for limit in limits if not isinstance(limit, Slots)]
    if bug == "own tokens":
        return [replace(limit, key=f"{limit.key} {os.getpid()}") if isinstance(limit, Bucket) else limit for limit in limits]
    if bug == "deaf":  # it knows of the breaker, and goes on
        return [limit for limit in limits if not (isinstance(limit, Bucket) and is_of_breaker(limit))]
    return list(limits)


def _plant(bug: str) -> None:
    """What is wrong with the worker itself."""
    if bug == "deaf":
        Board.refusal = lambda *_: ""  # type: ignore[method-assign]
    if bug == "late":
        Board.sync = _late(Board.sync)  # type: ignore[assignment, method-assign]


def _late(sync: Callable[[Board], Awaitable[None]]) -> Callable[[Board], Coroutine[Any, Any, None]]:
    """A worker that claims before it has heard of anything."""
    begun: set[Board] = set()

    async def late_sync(board: Board) -> None:
        if board in begun:
            await asyncio.sleep(0.5)
            await sync(board)
        begun.add(board)

    return late_sync


async def _nothing(limit: int) -> list[Job]:
    return []


async def serve(url: str, ledger_path: str, settings: dict[str, Any]) -> None:
    """Serves until told to stop."""
    bug, sweeps = settings.pop("bug", ""), settings.pop("sweeps", True)
    _plant(bug)
    ledger = Ledger(Path(ledger_path))
    app = make_limited_app(url, ledger)
    watched = Watched(app, ledger, bug)
    if not sweeps:
        app.store.overdue = _nothing  # type: ignore[method-assign]
    told = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), told.set)
    async with app:
        await watched.compare_clocks(app.store.now_us)
        async with app.worker(**settings):
            print("ready", flush=True)
            await told.wait()
    print("stopped", flush=True)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))
