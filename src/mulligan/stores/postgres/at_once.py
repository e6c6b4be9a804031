"""Batches that are settled by one statement: one round trip, and no transaction that stays open while its client is busy.

Three kinds, the narrowest first: successes that are alike, other successes, and any outcomes of held jobs. Each change is written only
where its guard holds. Of successes the others are written all the same; whoever settles the batch again knows them by their settle_ids.
A batch that leaves records and events is written whole or not at all, because these must come with the change that they tell of.

Whatever else there is (a guard that does not hold, a cancel that wins, a takeover, a requeue) is for settle.py, which looks first.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from mulligan.core.change import Change, Verdict, all_equal, are_successes, held_fences
from mulligan.core.events import EVENT_LOG_MAX, stored_forms_of
from mulligan.core.job import HISTORY_MAX
from mulligan.stores.postgres.database import Database
from mulligan.stores.postgres.entries import entries_of
from mulligan.stores.postgres.rows import to_json
from mulligan.stores.postgres.writes import SETTLE, Write, joined, params_of

SETTLE_ALIKE = "SELECT at_us, written FROM {s}.settle_alike($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)"
SETTLE_WHOLE = """
SELECT at_us, written FROM {s}.settle_whole(
  $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25)
"""
_JOB_ID = operator.attrgetter("job_id")
_NUMBERS = ("attempts", "failures", "crashes", "snoozes", "releases", "generation", "last_delay_us")
_ALIKE = operator.attrgetter("guard", "queue", "lane", "error", *_NUMBERS)


async def settle_at_once(database: Database, changes: Sequence[Change]) -> list[Verdict] | None:
    """The verdicts of a batch that could be written by one statement; None if it has to be looked at."""
    now_us = database.now_us()
    fences = held_fences(changes)
    if not fences:
        return None
    if is_alike(changes) and (params := _params_alike(now_us, changes, fences[0])):
        at_us, written = await database.row(SETTLE_ALIKE, *params)
    elif are_successes(changes):
        at_us, written = await database.row(SETTLE, *params_of(now_us, _writes_of(changes, fences)))
    elif params := _params_whole(now_us, changes, fences):
        at_us, written = await database.row(SETTLE_WHOLE, *params)
    else:
        return None
    if written != len(changes):
        return None
    return [
        Verdict(
            job_id=change.job_id,
            applied=True,
            status=change.status,
            fence=fence,
            run_at_us=at_us + change.delay_us if change.status == "pending" else None,
            at_us=at_us,
        )
        for change, fence in zip(changes, fences, strict=True)
    ]


def is_alike(changes: Sequence[Change]) -> bool:
    """Whether changes of held jobs are successes that differ only in their jobs and results; such a batch needs the fewest parameters."""
    return len(changes) > 0 and are_successes(changes) and changes[0].error is None and all_equal(map(_ALIKE, changes))


def _writes_of(changes: Sequence[Change], fences: Sequence[int]) -> list[Write]:
    return [Write(change, "processing", fence, change.status) for change, fence in zip(changes, fences, strict=True)]


def _params_alike(now_us: int | None, changes: Sequence[Change], fence: int) -> list[Any] | None:
    """The parameters of SETTLE_ALIKE, in the order of ids. None if what is of each job cannot be joined."""
    changes = sorted(changes, key=_JOB_ID)
    first = changes[0]
    ids, settle_ids = joined([change.job_id for change in changes], ","), joined([change.settle_id for change in changes], ",")
    if ids is None or settle_ids is None:
        return None
    results = [change.result_json for change in changes]
    return [
        now_us,
        ids,
        results if any(results) else None,
        settle_ids,
        first.queue,
        fence,
        first.lane,
        *(getattr(first, name) for name in _NUMBERS),
    ]


def _params_whole(now_us: int | None, changes: Sequence[Change], fences: Sequence[int]) -> list[Any] | None:
    """The parameters of SETTLE_WHOLE. The texts leave open what only the store's time tells, as the function says. None if what is of each
    job cannot be joined."""
    pairs = list(zip(changes, fences, strict=True))
    recorded = [(change, fence, change.record) for change, fence in pairs if change.record is not None]
    told = [event for change in changes for event in stored_forms_of(change, _planned(change))]
    _, ids, held, kinds, errors, results, settle_ids, *others = params_of(now_us, _writes_of(changes, fences))
    recorded_ids, records = [change.job_id for change, _, _ in recorded], [to_json(record) for _, _, record in recorded]
    named = joined(ids, ","), joined(settle_ids, ","), joined(recorded_ids, ",")
    told_of = joined([error or "" for error in errors], "\n"), joined(records, "\n")
    if None in named or None in told_of:
        return None
    return [
        now_us,
        named[0],
        held,
        kinds,
        told_of[0],
        results,
        named[1],
        *others,
        named[2],
        told_of[1],
        sorted(change.job_id for change, fence, _ in recorded if fence + change.generation > HISTORY_MAX),
        HISTORY_MAX,
        *entries_of(told),
        EVENT_LOG_MAX,
    ]


def _planned(change: Change) -> Verdict:
    """The verdict of a change that ends as planned, without the times."""
    return Verdict(job_id=change.job_id, applied=True, status=change.status)
