"""New jobs into the file: in our own transaction, or in the caller's."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec

from mulligan.core.contract import Inserted
from mulligan.core.errors import IllegalMove
from mulligan.core.job import NewJob
from mulligan.stores.sqlite.bulk import ROWS, Params, portions
from mulligan.stores.sqlite.hop import Transaction
from mulligan.stores.sqlite.rows import to_json

# The columns that differ from job to job, as the rows of the statement have them.
_COLUMNS = (
    "id",
    "queue",
    "task",
    "priority",
    "run_at_us",
    "max_retries",
    "timeout_us",
    "max_age_us",
    "schedule",
    "tick_us",
    "unique_key",
    "concurrency_key",
    "fair_key",
    "grp",
    "tags",
    "trace",
    "policy",
    "payload",
)
_VALUES = ", ".join(f"column{place}" for place in range(1, len(_COLUMNS) + 1))
_RUN_AT = f"column{_COLUMNS.index('run_at_us') + 1}"
# A known id and a taken unique key are both passed over; which of the two it was is looked up afterwards, and only if there was one.
_INSERT = f"""
INSERT INTO mulligan_jobs (status, lane, created_at_us, updated_at_us, due_first_us, due_us, {", ".join(_COLUMNS)})
SELECT 'pending', 'fresh', ?, ?, {_RUN_AT}, {_RUN_AT}, {_VALUES}
FROM {ROWS} WHERE column1 IS NOT NULL
ON CONFLICT DO NOTHING
"""
_KNOWN = "SELECT json_group_array(id) FROM mulligan_jobs WHERE id IN (SELECT value FROM json_each(?))"
_OWNER = """
SELECT id FROM mulligan_jobs INDEXED BY mulligan_jobs_unique
WHERE queue = ? AND unique_key = ? AND unique_key IS NOT NULL AND status IN ('pending', 'processing')
"""

_ids_decoder = msgspec.json.Decoder(set[str])


def insert(transaction: Transaction, jobs: Sequence[NewJob]) -> list[Inserted]:
    """Stores new jobs; see Inserted for what a known id or a taken unique key answers."""
    answers = _insert(transaction.connection.cursor(), jobs, transaction.now_us)
    transaction.wakes = True
    return answers


def insert_in(connection: sqlite3.Connection, jobs: Sequence[NewJob], now_us: int) -> list[Inserted]:
    """Stores new jobs in the caller's open transaction: they are there if and when the caller commits."""
    if connection.isolation_level is None and not connection.in_transaction:
        raise IllegalMove("the connection is in no transaction to join; execute BEGIN IMMEDIATE on it first, and COMMIT afterwards")
    cursor = connection.cursor()
    cursor.row_factory = None
    return _insert(cursor, jobs, now_us)


def _insert(cursor: sqlite3.Cursor, jobs: Sequence[NewJob], now_us: int) -> list[Inserted]:
    if _is_repetitive(jobs):
        # What the second of two with one id answers depends on what became of the first, so they are taken one after the other.
        return [answer for job in jobs for answer in _insert(cursor, [job], now_us)]
    rows = [_row_of(job, now_us) for job in jobs]
    added = 0
    for sql, params in portions(_INSERT, len(_COLUMNS), rows, (now_us, now_us)):
        added += cursor.execute(sql, params).rowcount
    if added == len(jobs):
        return [Inserted(id=job.id, created=True, at_us=now_us) for job in jobs]
    return _explained(cursor, jobs, now_us)


def _is_repetitive(jobs: Sequence[NewJob]) -> bool:
    return len({job.id for job in jobs}) < len(jobs)


def _explained(cursor: sqlite3.Cursor, jobs: Sequence[NewJob], now_us: int) -> list[Inserted]:
    """The answers where not all jobs were new: an id that is there stands for itself, another is a taken key."""
    [text] = cursor.execute(_KNOWN, (to_json([job.id for job in jobs]),)).fetchone()
    known = _ids_decoder.decode(text)
    answers = []
    for job in jobs:
        job_id = job.id
        if job_id not in known:
            [job_id] = cursor.execute(_OWNER, (job.queue, job.unique_key)).fetchone()
        answers.append(Inserted(id=job_id, created=job.id in known, at_us=now_us))
    return answers


def _row_of(job: NewJob, now_us: int) -> Params:
    row: tuple[Any, ...] = (
        job.id,
        job.queue,
        job.task,
        job.priority,
        job.eta_us if job.eta_us is not None else now_us + job.delay_us,
        job.max_retries,
        job.timeout_us,
        job.max_age_us,
        job.schedule,
        job.tick_us,
        job.unique_key,
        job.concurrency_key,
        job.fair_key,
        job.group,
        to_json(job.tags) if job.tags else "[]",
        job.trace,
        job.policy,
        job.payload,
    )
    return row
