"""The careful claim, where limits or groups have a say: one transaction, so that it takes effect at one moment.

look → take turns with the others → list the lines → count → choose (core/choosing) → take, write the levels, remember the claim.
Whoever is in conflict with another begins again (transaction.py), so what was counted and chosen is what is true when it is written, and
the order is exact among rivals too. A claim that finds nothing to take writes nothing, and is in nobody's way.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from pymongo import UpdateMany

from mulligan.core.choosing import (
    Choice,
    Chosen,
    Line,
    Waiting,
    choose,
    has_groups,
    needs,
    sooner,
    turns_of,
    used_up,
    with_longer,
)
from mulligan.core.contract import Ask, Claimed
from mulligan.core.job import Job, Lane
from mulligan.core.limits import Ledger, slots_text
from mulligan.core.ring import Round, is_short
from mulligan.stores.mongo.database import Database, Session
from mulligan.stores.mongo.limits import count, forget_buckets, read_levels, take_turns, write_levels
from mulligan.stores.mongo.look import Seen, look_inside, next_due_us
from mulligan.stores.mongo.marks import mark, unmark
from mulligan.stores.mongo.rows import WITHOUT_HISTORY, Bad, decoded, quarantine, sorted_out
from mulligan.stores.mongo.schema import TURN, lanes_of, line_of
from mulligan.stores.mongo.take import Wish, claim_doc, forget_claims, guarded, held, taken_values, taking
from mulligan.stores.mongo.transaction import in_transaction
from mulligan.stores.mongo.turns import Turns

DAMAGED_MAX = 100  # jobs whose group is none that one claim puts aside


class Listed(NamedTuple):
    """The lines of each ask, how their groups were gone round, and what a hand has damaged in them."""

    lines: list[list[Line]]
    rounds: list[list[Round]]
    damaged: set[tuple[str, str]]  # lines and the texts in them that are no groups


class Outcome(NamedTuple):
    """What a careful claim did."""

    seen: Seen
    listed: Listed
    choice: Choice
    ledger: Ledger
    rows: list[Job | Bad]


async def claim_carefully(database: Database, wish: Wish, rng: random.Random) -> Claimed:
    """Takes due jobs under a lease as far as limits admit, tenants in turn, or finds what an earlier claim of the same id still holds."""
    if any(ask.order == "created_at" for ask in wish.asks):
        await mark(database, wish.asks)
    async with database.careful:
        outcome = await in_transaction(database, rng, lambda session: _attempt(database, wish, session))
        while outcome.seen.grouped - database.grouped:
            database.grouped |= outcome.seen.grouped
            outcome = await in_transaction(database, rng, lambda session: _attempt(database, wish, session))
    if outcome.seen.known is not None:
        return await held(database, wish, outcome.seen.known, outcome.seen)
    await _tidy_up(database, outcome)
    return await _answer(database, wish, outcome)


async def _attempt(database: Database, wish: Wish, session: Session) -> Outcome:
    seen = await _look(database, wish, session)
    busy = _busy(wish.asks, seen)
    if seen.known is not None or seen.grouped - database.grouped or not busy:
        await session.abort_transaction()
        nothing = Listed([[] for _ in wish.asks], [[] for _ in wish.asks], set())
        ledger = Ledger(seen.now_us, {}, {})
        return Outcome(seen, nothing, choose(wish.total, wish.asks, nothing.lines, ledger), ledger, [])
    await take_turns(database, session, busy)
    listed, choice, ledger = await _Search(database, wish, session, seen).choose()
    rows: list[Job | Bad] = []
    if choice.jobs:
        rows = await _take(database, wish, session, choice.jobs, seen.now_us)
        _charge(wish.asks, choice.jobs, rows, ledger)
        await write_levels(database, session, ledger.writes())
        grips = [(one.job.id, one.job.ref) for one in choice.jobs]
        await database.claims.insert_one(claim_doc(wish, grips, seen.now_us), session=session)
    else:
        await session.abort_transaction()
    return Outcome(seen, listed, choice, ledger, rows)


async def _look(database: Database, wish: Wish, session: Session) -> Seen:
    """Marks that a claim in the order of run_at meets are taken off afterwards: what is changed now would be in conflict with the take."""
    turns = {line_of(ask.queue, lane, ask.priority) for ask in wish.asks if ask.queue in database.grouped for lane in lanes_of(ask)}
    seen = await look_inside(database, session, wish.claim_id, wish.asks, wish.total, turns)
    if seen.marked and seen.known is None:
        seen = await look_inside(database, session, wish.claim_id, wish.asks, wish.total, turns, with_marked=True)
    return seen


def _busy(asks: Sequence[Ask], seen: Seen) -> set[str]:
    """The queues in which something is due for one of the asks."""
    busy = {asks[source.ask].queue for source, found in zip(seen.sources, seen.found, strict=True) if found}
    busy |= {ask.queue for ask in asks for lane in lanes_of(ask) if line_of(ask.queue, lane, ask.priority) in seen.turns}
    return busy - seen.paused


class _Search:
    """What a claim chooses from what it sees; where that is too little, it looks further."""

    def __init__(self, database: Database, wish: Wish, session: Session, seen: Seen) -> None:
        self._database = database
        self._wish = wish
        self._session = session
        self._seen = seen
        self._turns: dict[tuple[int, Lane], Turns] = {}

    async def choose(self) -> tuple[Listed, Choice, Ledger]:
        """The lines, the choice from them, and what the limits allow before it."""
        asks, total = self._wish.asks, self._wish.total
        listed = await self._list(wide=False)
        choice, ledger = await self._choose(listed.lines)
        if is_short(total, len(choice.jobs), chain(*listed.rounds)):
            listed = await self._list(wide=True)
            choice, ledger = await self._choose(listed.lines)
        if wanted := used_up(total, listed.lines, choice):
            listed = listed._replace(lines=with_longer(listed.lines, await self._longer(wanted)))
            choice = choose(total, asks, listed.lines, ledger)
        return listed, choice, ledger

    async def _choose(self, lines: list[list[Line]]) -> tuple[Choice, Ledger]:
        scopes, buckets = needs(self._wish.asks, lines)
        counts = await count(self._database, self._session, scopes, self._seen.now_us) if scopes else {}
        ledger = Ledger(self._seen.now_us, counts, await read_levels(self._database, self._session, buckets))
        return choose(self._wish.total, self._wish.asks, lines, ledger), ledger

    async def _list(self, *, wide: bool) -> Listed:
        """The lines each ask may draw from: of each lane the jobs without a group, then its groups in their turn."""
        wish, seen = self._wish, self._seen
        listed = Listed([[] for _ in wish.asks], [[] for _ in wish.asks], set())
        for number, ask in enumerate(wish.asks):
            for lane in lanes_of(ask) if ask.queue not in seen.paused else ():
                waiting = [Waiting(*candidate) for candidate in seen.of_lane(number, lane, wish.total)]
                listed.lines[number].append(Line(lane, None, waiting))
                place = (ask.queue, lane, ask.priority)
                line = line_of(*place)
                if line in seen.turns:
                    turns = Turns(self._database, self._session, place, ask.order, seen.now_us, wish.total, seen.turns[line])
                    round_, lines = await turns.go_round(ask.after, self._database.stretches, wide=wide)
                    self._turns[number, lane] = turns
                    listed.lines[number].extend(lines)
                    listed.rounds[number].append(round_)
                    listed.damaged.update((line, group) for group in turns.damaged)
        return listed

    async def _longer(self, wanted: Sequence[tuple[int, Lane, str]]) -> dict[tuple[int, Lane, str], Line]:
        """More jobs of some groups, given by ask, lane and group."""
        found = {}
        for (number, lane), turns in self._turns.items():
            groups = [group for *place, group in wanted if place == [number, lane]]
            for line in await turns.longer(groups) if groups else ():
                found[number, lane, str(line.group)] = line
        return found


async def _take(database: Database, wish: Wish, session: Session, chosen: Sequence[Chosen], now_us: int) -> list[Job | Bad]:
    """Takes the chosen jobs, each with the slots it is claimed under; what was taken, in the order of the choice."""
    by_slots: dict[str | None, list[tuple[str, int]]] = {}
    for one in chosen:
        slots = slots_text(wish.asks[one.ask].limits, one.line.lane, one.line.group)
        by_slots.setdefault(slots, []).append((one.job.id, one.job.ref))
    values = taken_values(wish, now_us)
    updates = [
        UpdateMany(guarded({"status": "pending"}, grips), taking(values if slots is None else {**values, "slots": slots}), hint="_id_")
        for slots, grips in by_slots.items()
    ]
    await database.jobs.bulk_write(updates, session=session)
    mine = {"_id": {"$in": [one.job.id for one in chosen]}, "status": "processing", "claim_id": wish.claim_id}
    docs = {doc["_id"]: doc for doc in await database.docs(database.jobs, mine, WITHOUT_HISTORY, session=session)}
    return [decoded(docs[one.job.id], now_us) for one in chosen if one.job.id in docs]


def _charge(asks: Sequence[Ask], chosen: Sequence[Chosen], rows: Sequence[Job | Bad], ledger: Ledger) -> None:
    """A job that cannot be read will not be started, and costs nothing."""
    taken = {row.id for row in rows if isinstance(row, Job)}
    for one in chosen:
        if one.job.id in taken:
            ask = asks[one.ask]
            ledger.charge(ask.queue, one.line.lane, one.line.group, ask.limits)


async def _tidy_up(database: Database, outcome: Outcome) -> None:
    """What need not be part of the step: damaged documents are put aside, marks taken off, old claims and buckets forgotten."""
    now_us = outcome.seen.now_us
    for row in outcome.rows:
        if isinstance(row, Bad):
            await quarantine(database, row, now_us)
    for line, group in outcome.listed.damaged:
        query = {"turn_line": line, "group": group}
        await sorted_out(database, await database.docs(database.jobs, query, WITHOUT_HISTORY, hint=TURN, limit=DAMAGED_MAX), now_us)
    if outcome.seen.marked:
        await unmark(database, outcome.seen.marked)
    if outcome.rows:
        await forget_claims(database, now_us)
    if outcome.ledger.writes():
        await forget_buckets(database, now_us)


async def _answer(database: Database, wish: Wish, outcome: Outcome) -> Claimed:
    seen, lines, choice = outcome.seen, outcome.listed.lines, outcome.choice
    next_due: int | None = None
    if len(outcome.rows) < wish.total:
        due_us = await next_due_us(database, {ask.queue for ask in wish.asks} - seen.paused, seen.now_us)
        next_due = sooner([due_us], choice, seen.now_us)
    turns = turns_of(wish.asks, lines, choice)
    database.stretches.learn(outcome.listed.rounds, turns)
    return Claimed(
        jobs=[row for row in outcome.rows if isinstance(row, Job)],
        now_us=seen.now_us,
        next_due_us=next_due,
        held_back=choice.held_back,
        turns=tuple(turn.after for turn in turns) if has_groups(lines) else (),
        levels=outcome.ledger.levels(),
    )
