"""Claiming where limits of the whole fleet or groups of jobs have a say: a transaction of a few steps, chosen by core/choosing.

Its steps: lock the limits, take the time and list what waits (functions_careful.py); count the slots and read the buckets
(functions_limits.py); choose; take, and write what is left in the buckets. The locks are held until the commit, so claims that share a
limit come one after the other, and each counts what those before it have taken.

Jobs that another claim has locked at that moment are passed over, and the steps are repeated without them for what is still wanted.
Floors (floors.py) are not used here: a limit may leave jobs behind anywhere in a line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple

from mulligan.core.choosing import Choice, Chosen, choose, has_groups, needs, sooner, turns_of, used_up, with_longer
from mulligan.core.contract import Ask, Claimed
from mulligan.core.limits import BUCKET_MEMORY_US, Ledger, Level, Scope, Slots, matters_without_group, slots_text
from mulligan.core.ring import Stretches, is_short
from mulligan.stores.postgres.claim import CLAIM_MEMORY_US, ID, SENT_COLUMNS, Wish, completed
from mulligan.stores.postgres.database import Database, Transaction
from mulligan.stores.postgres.find import BY_ID
from mulligan.stores.postgres.look import Listing, Look
from mulligan.stores.postgres.rows import decode, salvage

ROUNDS_MAX = 5  # looks of one claim, where others were quicker
_PLACES = 1_000_000_000  # more than any claim takes: the order of a look stands behind that of the one before

COUNT_LIMITS = "SELECT place, jobs, bucket, level_u, level_at_us FROM {s}.count_limits($1, $2, $3, $4, $5)"
TAKE_CHOSEN = f"""
SELECT {SENT_COLUMNS} FROM {{s}}.take_chosen($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
"""
_WRITE_LEVELS = "SELECT {s}.write_levels($1, $2, $3, $4)"
_HELD = f"SELECT {SENT_COLUMNS} FROM {{s}}.jobs WHERE status = 'processing' AND claim_id = $1"
_LEVELS = "SELECT key, level_u, at_us FROM {s}.buckets"


def is_careful(asks: Sequence[Ask], grouped: set[str]) -> bool:
    """Whether a claim is one for this module, as far as is known: a limit matters to it, or one of its queues has groups."""
    return any(ask.queue in grouped or (ask.limits and matters_without_group(ask.limits)) for ask in asks)


async def claim(database: Database, grouped: set[str], stretches: Stretches, wish: Wish) -> Claimed:
    """Takes due jobs within their limits and in the turns of their groups, or returns what an earlier claim of the same id still holds.
    Notes which of the queues have groups."""
    given_us = database.now_us()
    taken = await database.within(lambda transaction: _Claim(transaction, wish, stretches).made(given_us))
    grouped |= taken.grouped
    jobs = decode(taken.rows, taken.now_us)
    if jobs is None:
        jobs = await salvage(database, taken.rows, taken.now_us)
    if taken.damaged:
        await salvage(database, await database.rows(BY_ID, taken.damaged), taken.now_us)
    return Claimed(
        jobs=jobs,
        now_us=taken.now_us,
        next_due_us=taken.next_due_us if len(taken.rows) < wish.total else None,
        held_back=taken.held_back,
        turns=taken.turns,
        levels=taken.levels,
    )


async def levels(database: Database) -> dict[str, Level]:
    """What is stored of every bucket."""
    return {key: Level(level_u, at_us) for key, level_u, at_us in await database.rows(_LEVELS)}


def locks_of(asks: Iterable[Ask]) -> dict[str, bool]:
    """The locks of a claim by name, in the order in which they are taken; True for those that may be shared.

    The slots of a queue have one lock. A bucket has one under its key; where each tenant has one of its own, whose keys stand below it
    (`key/tenant`), the lock of the key is for all of them. So whoever locks a key also holds those above it, shared with others.
    """
    locks: dict[str, bool] = {}
    for ask in asks:
        for limit in ask.limits:
            if isinstance(limit, Slots):
                locks[slots_lock(ask.queue)] = False
                continue
            parts = limit.key.split("/")
            for depth in range(1, len(parts)):
                locks.setdefault(f"bucket {'/'.join(parts[:depth])}", True)
            locks[f"bucket {limit.key}"] = False
    return dict(sorted(locks.items()))


def slots_lock(queue: str) -> str:
    """The name of the lock of a queue's slots."""
    return f"slots {queue}"


class _Taken(NamedTuple):
    """A claim as it was made."""

    now_us: int
    rows: list[list[Any]]
    next_due_us: int | None
    grouped: set[str]
    damaged: list[str]  # jobs whose group cannot be read
    held_back: frozenset[str] = frozenset()
    turns: tuple[str, ...] = ()
    levels: dict[str, int] = {}


class _Claim:
    """One claim inside its transaction."""

    def __init__(self, transaction: Transaction, wish: Wish, stretches: Stretches) -> None:
        self._transaction = transaction
        self._wish = wish
        self._stretches = stretches
        self._look = Look(transaction, wish, stretches, locks_of(wish.asks))
        self._rows: list[Any] = []  # what was taken
        self._chosen: list[Chosen] = []  # in all looks, taken or not
        self._levels: dict[str, int] = {}

    async def made(self, given_us: int | None) -> _Taken:
        """All steps of the claim."""
        asks = self._wish.asks
        first = listing = await self._look.lines(given_us, [], first=True)
        if listing.is_repeat:
            return self._taken(listing, await self._transaction.rows(_HELD, self._wish.claim_id), listing.next_due_us)
        passed: list[str] = []
        for number in range(ROUNDS_MAX):
            listing, choice, ledger = await self._choose(listing, passed)
            first = listing if number == 0 else first
            missed = await self._take(number, listing.now_us, choice, ledger) if choice.jobs else []
            if not missed or number == ROUNDS_MAX - 1:
                break
            passed += missed
            listing = await self._look.lines(first.now_us, passed)
        # Where others were quicker to the end, there may be more at once.
        next_due_us = first.now_us if missed else sooner([first.next_due_us], choice, first.now_us)
        turns = turns_of(asks, first.lines, choice._replace(jobs=self._chosen))
        self._stretches.learn(first.rounds, turns)
        afters = tuple(turn.after for turn in turns) if has_groups(first.lines) else ()
        levels = self._levels or ledger.levels()
        return self._taken(first, self._rows, next_due_us)._replace(held_back=choice.held_back, turns=afters, levels=levels)

    async def _choose(self, listing: Listing, passed: list[str]) -> tuple[Listing, Choice, Ledger]:
        """The choice from a listing, and from further ones where that was too little."""
        asks, wanted = self._wish.asks, self._wish.total - len(self._rows)
        ledger = await self._ledger(listing.now_us, *needs(asks, listing.lines))
        choice = choose(wanted, asks, listing.lines, ledger)
        if is_short(wanted, len(choice.jobs), chain(*listing.rounds)):
            wide = await self._look.lines(listing.now_us, passed, wide=True)
            listing = listing._replace(lines=wide.lines, rounds=wide.rounds, damaged=[*listing.damaged, *wide.damaged])
            ledger = await self._ledger(listing.now_us, *needs(asks, listing.lines))
            choice = choose(wanted, asks, listing.lines, ledger)
        if groups := used_up(wanted, listing.lines, choice):
            listing = listing._replace(lines=with_longer(listing.lines, await self._look.longer(groups, listing.now_us, passed)))
            choice = choose(wanted, asks, listing.lines, ledger)
        return listing, choice, ledger

    def _taken(self, listing: Listing, rows: Sequence[Any], next_due_us: int | None) -> _Taken:
        return _Taken(
            now_us=listing.now_us,
            rows=completed(self._wish, rows, listing.now_us),
            next_due_us=next_due_us,
            grouped=listing.grouped,
            damaged=list(dict.fromkeys(listing.damaged)),
        )

    async def _ledger(self, now_us: int, scopes: set[Scope], buckets: set[str]) -> Ledger:
        """What the limits say, read under their locks."""
        if not scopes and not buckets:
            return Ledger(now_us, {}, {})
        ordered = list(scopes)
        columns = [[scope.queue for scope in ordered], [scope.lane for scope in ordered], [scope.key for scope in ordered]]
        rows = await self._transaction.rows(COUNT_LIMITS, now_us, *columns, sorted(buckets))
        counts = {ordered[row[0] - 1]: row[1] for row in rows if row[0] is not None}
        return Ledger(now_us, counts, {row[2]: Level(row[3], row[4]) for row in rows if row[2] is not None})

    async def _take(self, number: int, now_us: int, choice: Choice, ledger: Ledger) -> list[str]:
        """Takes what was chosen, and writes what it costs; the ids of those that could not be had."""
        wish = self._wish
        planned = self._charged(ledger, choice.jobs)
        writes = planned.writes()
        rows = await self._transaction.rows(
            TAKE_CHOSEN,
            now_us,
            wish.claim_id,
            bool(self._rows),
            wish.owner,
            wish.lease_us,
            [one.job.id for one in choice.jobs],
            [one.line.lane for one in choice.jobs],
            [slots_text(wish.asks[one.ask].limits, one.line.lane, one.line.group) for one in choice.jobs],
            number * _PLACES,
            CLAIM_MEMORY_US,
            list(writes),
            [level.level_u for level in writes.values()],
            BUCKET_MEMORY_US,
        )
        self._rows += rows
        self._chosen += choice.jobs
        had = {row[ID] for row in rows}
        if len(had) < len(choice.jobs):
            planned = self._charged(ledger, [one for one in choice.jobs if one.job.id in had])
            if writes := planned.writes():
                levels_u = [level.level_u for level in writes.values()]
                await self._transaction.rows(_WRITE_LEVELS, now_us, list(writes), levels_u, BUCKET_MEMORY_US)
        self._levels |= planned.levels()
        return [one.job.id for one in choice.jobs if one.job.id not in had]

    def _charged(self, ledger: Ledger, jobs: Iterable[Chosen]) -> Ledger:
        """The ledger after these jobs were started."""
        charged = ledger.copy()
        for one in jobs:
            ask = self._wish.asks[one.ask]
            charged.charge(ask.queue, one.line.lane, one.line.group, ask.limits)
        return charged
