"""Settling: guarded changes, applied together in few statements, answered one by one.

Mostly a batch is nothing but successes. Those are written at once, in one round trip, each only where its guard holds; if all were
written, all answers are known. In any other batch the documents are looked at first, each change is judged in its order (judge.py),
and those that apply are written together, each only if its job is still what it was judged by. Should one have changed in between, the
changes of that job are judged again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from pymongo.errors import BulkWriteError, PyMongoError

from mulligan.core.change import Change, Verdict, are_successes, held_fences
from mulligan.core.errors import StoreUnavailable
from mulligan.core.events import STORED_KINDS, events_of
from mulligan.core.ids import new_id
from mulligan.stores.mongo.database import Database
from mulligan.stores.mongo.eventlog import append_events
from mulligan.stores.mongo.judge import KEY_TAKEN, Judged, State, judge, states_of
from mulligan.stores.mongo.letters import copy_letters
from mulligan.stores.mongo.write import Write, operations, plain_updates

ROUNDS = 20
_DUPLICATE_KEY = 11_000


class Telling:
    """What one call has to tell the event log, through all its repeats: one of them finds written what another had no time to tell."""

    def __init__(self) -> None:
        self.name = new_id(0)  # by which the log knows what it has been told
        self.tried: set[str] = set()  # settle ids of what may have been written


async def settle(database: Database, changes: Sequence[Change], telling: Telling) -> list[Verdict]:
    """Applies each change whose guard holds, in order; the others are refused, one by one."""
    if not changes:
        return []
    if fences := plain_fences(changes):
        now_us, all_written = await asyncio.gather(database.now_us(), _write_plain(database, changes))
        if all_written:
            return [
                Verdict(job_id=change.job_id, applied=True, status=change.status, fence=fence, at_us=now_us)
                for change, fence in zip(changes, fences, strict=True)
            ]
    verdicts, is_new = await _settle(database, changes, telling)
    fresh = [(change, verdict) for change, verdict, new in zip(changes, verdicts, is_new, strict=True) if new]
    events = [event for change, verdict in fresh for event in events_of(change, verdict) if event.kind in STORED_KINDS]
    await append_events(database, events, telling.name)
    if any(verdict.applied and (change.cause == "requeue" or verdict.status == "failed") for change, verdict in fresh):
        with suppress(PyMongoError):  # the marks stay, and the next sweep makes the copies; repeating this call would write nothing new
            await copy_letters(database)
    return verdicts


def plain_fences(changes: Sequence[Change]) -> list[int]:
    """The fences of a batch of nothing but successes that forget what was wrong before; none if it is anything else."""
    for change in changes:
        if change.error is not None or change.last_delay_us is not None:
            return []
    return held_fences(changes) if are_successes(changes) else []


async def _write_plain(database: Database, changes: Sequence[Change]) -> bool:
    """Writes successes without looking first; whether all of them were held."""
    written = await database.jobs.bulk_write(plain_updates(changes, database.now_term()), ordered=False)
    return written.matched_count == len(changes)


async def _settle(database: Database, changes: Sequence[Change], telling: Telling) -> tuple[list[Verdict], list[bool]]:
    """The verdicts, and for each whether it is the first one (a repeated call has told its events before)."""
    answers: dict[int, Judged] = {}
    untold = frozenset(telling.tried)
    left = list(range(len(changes)))
    for _ in range(ROUNDS):
        now_us, states = await states_of(database, sorted({changes[place].job_id for place in left}))
        judged = {place: judge(states, changes[place], now_us, letters=database.letters is not None) for place in left}
        writes = {place: one.write for place, one in judged.items() if one.write is not None}
        telling.tried.update(changes[place].settle_id for place in writes)
        refused, applied = await _apply(database, writes)
        for place, one in judged.items():
            if place in refused:
                # A later change of the same job was judged as if this one had been applied; it stays, and is judged again.
                answers[place] = Judged(_key_taken(one.verdict, one.before), is_new=True)
            elif place in applied or (one.write is None and not _follows(place, changes, set(writes) - applied)):
                answers[place] = one
        left = [place for place in left if place not in answers]
        if not left:
            if not all(one.is_new for one in answers.values()):
                await database.confirm()  # what a repeat found written may not have reached the majority yet
            is_new = [answers[place].is_new or change.settle_id in untold for place, change in enumerate(changes)]
            return [answers[place].verdict for place in range(len(changes))], is_new
    raise StoreUnavailable("the jobs of this batch are changed by others all the time; nothing is lost, the same call may be repeated")


def _follows(place: int, changes: Sequence[Change], failed: set[int]) -> bool:
    """Whether an earlier change of the same job was not written as judged."""
    return any(other < place and changes[other].job_id == changes[place].job_id for other in failed)


def _key_taken(verdict: Verdict, before: State | None) -> Verdict:
    assert before is not None
    return Verdict(job_id=verdict.job_id, applied=False, status=before.status, fence=before.fence, reason=KEY_TAKEN, at_us=verdict.at_us)


async def _apply(database: Database, writes: dict[int, Write]) -> tuple[set[int], set[int]]:
    """Writes; which were refused because their unique key is taken, and which were applied."""
    if not writes:
        return set(), set()
    places = list(writes)
    parts = operations(list(writes.values()))
    refused: set[int] = set()
    try:
        result = await database.jobs.bulk_write(parts, ordered=False)
        matched = result.matched_count
    except BulkWriteError as problem:
        errors = problem.details["writeErrors"]
        if problem.details["writeConcernErrors"] or any(error["code"] != _DUPLICATE_KEY for error in errors):
            raise
        matched = problem.details["nMatched"]
        # A change that takes a unique key is always an operation of its own.
        keys = {error["op"]["q"]["_id"] for error in errors}
        refused = {place for place in places if writes[place].takes_key and writes[place].job_id in keys}
    if matched == len(places) - len(refused):
        return refused, set(places) - refused
    settled = {
        doc["_id"]: (doc.get("settle_id"), doc.get("settled_before"))
        for doc in await database.jobs.find(
            {"_id": {"$in": sorted({write.job_id for write in writes.values()})}}, {"settle_id": 1, "settled_before": 1}, hint="_id_"
        ).to_list()
    }
    return refused, {place for place in places if writes[place].settle_id in settled.get(writes[place].job_id, ())}
