"""Jobs of another store, written as they were there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mulligan.core.job import LIVE, Job
from mulligan.core.receipt import Receipt
from mulligan.stores.postgres.database import Database, Transaction
from mulligan.stores.postgres.receipts import restore_receipts
from mulligan.stores.postgres.rows import COLUMNS, FIELDS, to_json

_TEXT, _NUMBER, _FLAG = "text", "bigint", "boolean"
_NUMBERS = {"max_retries", "priority", "attempts", "failures", "crashes", "snoozes", "releases", "generation", "fence"}


def _type_of(column: str) -> str:
    if column == "cancel_requested":
        return _FLAG
    return _NUMBER if column in _NUMBERS or column.endswith("_us") else _TEXT


_RESTORE = f"""
INSERT INTO {{s}}.jobs ({", ".join(COLUMNS)})
SELECT {", ".join(f"v.{name}" for name in COLUMNS)}
FROM unnest({", ".join(f"${place}::{_type_of(name)}[]" for place, name in enumerate(COLUMNS, start=1))}) AS v({", ".join(COLUMNS)})
ON CONFLICT (id) DO NOTHING RETURNING id
"""
_HISTORY = """
INSERT INTO {s}.history (job_id, record)
SELECT h.job_id, h.record FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS h(job_id, record, place) ORDER BY h.place
"""
_TALLY = """
INSERT INTO {s}.tallies (queue, status, jobs)
SELECT t.queue, t.status, count(*) FROM unnest($1::text[], $2::text[]) AS t(queue, status) GROUP BY t.queue, t.status
"""
_NOTE_GROUPS = "SELECT {s}.note_groups($1)"
_NOTE_PAST = "SELECT {s}.note_past()"
_COMPACT = "SELECT {s}.compact_tallies() WHERE random() < 0.05"  # many restores in a row leave many tallies and notes


async def restore(database: Database, jobs: Sequence[Job], receipts: Mapping[str, Sequence[Receipt]]) -> list[bool]:
    """Writes whole jobs; False for an id that is there already. A taken unique key is refused by its index."""

    async def work(transaction: Transaction) -> list[bool]:
        added = {row[0] for row in await transaction.rows(_RESTORE, *(_column(jobs, name) for name in FIELDS))}
        first: dict[str, Job] = {}
        answers = []
        for job in jobs:
            answers.append(job.id in added and job.id not in first)
            first.setdefault(job.id, job)
        new = [job for job in first.values() if job.id in added]
        records = [(job.id, to_json(record)) for job in new for record in job.history]
        if records:
            await transaction.rows(_HISTORY, [job_id for job_id, _ in records], [record for _, record in records])
        await restore_receipts(transaction, [(job.id, receipt) for job in new for receipt in receipts.get(job.id, ())])
        resting = [job for job in new if job.status not in LIVE]
        if resting:
            await transaction.rows(_TALLY, [job.queue for job in resting], [job.status for job in resting])
        if grouped := sorted({job.queue for job in new if job.group is not None}):
            await transaction.rows(_NOTE_GROUPS, grouped)
        if len(resting) < len(new):
            await transaction.rows(_NOTE_PAST)
        await transaction.rows(_COMPACT)
        return answers

    return await database.within(work) if jobs else []


def _column(jobs: Sequence[Job], name: str) -> list[Any]:
    if name == "tags":
        return [to_json(job.tags) for job in jobs]
    if name == "last_error":
        return [None if job.last_error is None else to_json(job.last_error) for job in jobs]
    return [getattr(job, name) for job in jobs]
