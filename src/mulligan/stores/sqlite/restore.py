"""Whole jobs from another store, written as they were there."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from mulligan.core.errors import StoreRejected
from mulligan.core.job import Job
from mulligan.core.receipt import Receipt
from mulligan.stores.sqlite.bulk import ROWS, Params
from mulligan.stores.sqlite.history import append_records
from mulligan.stores.sqlite.hop import Transaction
from mulligan.stores.sqlite.receipts import restore_receipts
from mulligan.stores.sqlite.rows import COLUMNS, FIELDS, encode, to_json

_VALUES = ", ".join(f"column{place}" for place in range(1, len(COLUMNS) + 1))
_RESTORE = f"INSERT INTO mulligan_jobs ({', '.join(COLUMNS)}) SELECT {_VALUES} FROM {ROWS} WHERE column1 IS NOT NULL"
_KNOWN = "SELECT id, seq FROM mulligan_jobs WHERE id IN (SELECT value FROM json_each(?))"
# Nothing but this inserts jobs at rest, so the triggers that count them do not fire.
_COUNT = """
INSERT INTO mulligan_tallies (queue, status, jobs) VALUES (?, ?, ?) ON CONFLICT (queue, status) DO UPDATE SET jobs = jobs + excluded.jobs
"""


def restore(transaction: Transaction, jobs: Sequence[Job], receipts: Mapping[str, Sequence[Receipt]]) -> list[bool]:
    """Writes the jobs whose ids are not there yet; which of them these were."""
    wanted = to_json([job.id for job in jobs])
    known = dict(transaction.rows(_KNOWN, (wanted,)))
    new = {job.id: job for job in reversed(jobs) if job.id not in known}
    try:
        transaction.run_rows(_RESTORE, len(COLUMNS), [_row_of(job) for job in new.values()])
    except sqlite3.IntegrityError as problem:
        raise StoreRejected(f"a restored job has the unique key of another live one of its queue: {problem}") from problem
    seqs = dict(transaction.rows(_KNOWN, (wanted,)))
    append_records(transaction, None, [(seqs[job.id], to_json(record)) for job in new.values() for record in job.history])
    restore_receipts(transaction, {job_id: seqs[job_id] for job_id in new}, receipts)
    at_rest = Counter((job.queue, job.status) for job in new.values() if job.finished_at_us is not None)
    for (queue, status), count in at_rest.items():
        transaction.run(_COUNT, (queue, status, count))
    transaction.wakes = True
    answers = []
    for job in jobs:
        answers.append(new.pop(job.id, None) is not None)  # the second of two with one id finds it there
    return answers


def _row_of(job: Job) -> Params:
    return [_column(name, getattr(job, name)) for name in FIELDS]


def _column(name: str, value: Any) -> Any:
    if name == "tags" or (name == "last_error" and value is not None):
        return encode(value).decode()
    return value
