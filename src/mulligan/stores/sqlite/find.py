"""Looking at jobs: by id with their history, and by filter, newest first."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from mulligan.core.contract import FIND_LIMIT_MAX, Found, Query
from mulligan.core.errors import UsageError
from mulligan.core.job import LIVE, Job, Status
from mulligan.stores.sqlite.history import histories
from mulligan.stores.sqlite.hop import Transaction
from mulligan.stores.sqlite.rows import numbers, read_jobs, to_json

# So many of the newest jobs are looked at before an index is gone through: most often the wanted ones are among them.
GLANCE = 2_000

_BY_ID = """
SELECT json_group_array(j.seq)
FROM (SELECT value AS wanted FROM json_each(?)) AS w CROSS JOIN mulligan_jobs AS j INDEXED BY mulligan_jobs_id WHERE j.id = w.wanted
"""
_CONDITIONS = {
    "status": "status = ?",
    "queue": "queue = ?",
    "task": "task = ?",
    "lane": "lane = ?",
    "schedule": "schedule = ?",
    # A row whose tags cannot be read has none; the error would otherwise end the whole query.
    "tag": "CASE WHEN json_valid(tags) THEN EXISTS (SELECT 1 FROM json_each(tags) AS t WHERE t.value = ?) ELSE 0 END",
}
# Which index to go through for a status, newest first or to be sorted. Each has the id in it, and only rows of that status.
_SOURCES: dict[Status, str] = {
    "pending": """(SELECT * FROM mulligan_jobs INDEXED BY mulligan_jobs_due WHERE status = 'pending' AND ready = 0 AND grp IS NULL
      UNION ALL SELECT * FROM mulligan_jobs INDEXED BY mulligan_jobs_fifo WHERE status = 'pending' AND ready = 1
      UNION ALL SELECT * FROM mulligan_jobs INDEXED BY mulligan_jobs_grouped WHERE grp IS NOT NULL AND status = 'pending')""",
    "processing": "(SELECT * FROM mulligan_jobs INDEXED BY mulligan_jobs_lease WHERE status = 'processing')",
    "done": "(SELECT * FROM mulligan_jobs INDEXED BY mulligan_jobs_finished WHERE status = 'done' AND finished_at_us IS NOT NULL)",
    "failed": """(SELECT * FROM mulligan_jobs INDEXED BY mulligan_jobs_rest
      WHERE status = 'failed' AND status IN ('failed', 'cancelled'))""",
    "cancelled": """(SELECT * FROM mulligan_jobs INDEXED BY mulligan_jobs_rest
      WHERE status = 'cancelled' AND status IN ('failed', 'cancelled'))""",
}
_BY_SCHEDULE = "(SELECT * FROM mulligan_jobs INDEXED BY mulligan_jobs_schedule WHERE schedule IS NOT NULL)"
_ALL = "(SELECT * FROM mulligan_jobs INDEXED BY mulligan_jobs_id)"
_NEWEST = """(SELECT * FROM mulligan_jobs INDEXED BY mulligan_jobs_id WHERE id >= coalesce(
  (SELECT id FROM mulligan_jobs INDEXED BY mulligan_jobs_id WHERE id < ? ORDER BY id DESC LIMIT 1 OFFSET ?), ''))"""
_AFTER_ALL = "\U0010ffff"  # sorts behind every id

_PRUNE = """
DELETE FROM mulligan_jobs WHERE seq IN (
  SELECT seq FROM mulligan_jobs INDEXED BY mulligan_jobs_finished WHERE status = ? AND finished_at_us <= ?
  ORDER BY finished_at_us, id LIMIT ?)
"""


def get(transaction: Transaction, ids: Sequence[str]) -> list[Job | None]:
    """The jobs with their histories, in the order of the ids; None where there is no such job."""
    [chosen] = transaction.row(_BY_ID, (to_json(list(dict.fromkeys(ids))),))
    jobs = {job.id: job for job in read_jobs(transaction, chosen)}
    for job_id, history in histories(transaction, chosen).items():
        jobs[job_id] = msgspec.structs.replace(jobs[job_id], history=tuple(history))
    return [jobs.get(job_id) for job_id in ids]


def find(transaction: Transaction, query: Query, limit: int, after: str | None) -> Found:
    """One page of the jobs that match, newest first."""
    fields = {name: value for name in _CONDITIONS if (value := getattr(query, name)) is not None}
    values = [*fields.values(), after or _AFTER_ALL, limit + 1]
    chosen: list[int] = []
    if query.status in ("pending", "done") and query.schedule is None:
        chosen = _chosen(transaction, _find_sql(_NEWEST, tuple(fields)), [after or _AFTER_ALL, GLANCE, *values])
    if len(chosen) <= limit:
        chosen = _chosen(transaction, _find_sql(_source_of(query), tuple(fields)), values)
    jobs = read_jobs(transaction, to_json(chosen[:limit]))
    return Found(jobs=jobs, after=jobs[-1].id if len(chosen) > limit else None)


def check_limit(limit: int) -> None:
    """UsageError unless a page may be so long."""
    if not 1 <= limit <= FIND_LIMIT_MAX:
        raise UsageError(f"limit must be between 1 and {FIND_LIMIT_MAX}, not {limit}")


def _source_of(query: Query) -> str:
    if query.schedule is not None:
        return _BY_SCHEDULE
    return _ALL if query.status is None else _SOURCES[query.status]


def _chosen(transaction: Transaction, sql: str, params: list[Any]) -> list[int]:
    [text] = transaction.row(sql, params)
    return numbers(text)


@lru_cache(maxsize=256)
def _find_sql(source: str, fields: tuple[str, ...]) -> str:
    conditions = "".join(f"{_CONDITIONS[name]} AND " for name in fields)
    return f"SELECT json_group_array(seq) FROM (SELECT seq FROM {source} WHERE {conditions}id < ? ORDER BY id DESC LIMIT ?)"


def prune(transaction: Transaction, status: Status, older_than_us: int, limit: int) -> int:
    """Removes jobs that came to rest long enough ago, oldest first, with their histories (by a trigger); returns how many."""
    return transaction.run(_PRUNE, (status, transaction.now_us - older_than_us, max(0, limit)))


def check_prunable(status: Status) -> None:
    """UsageError if jobs of this status are alive."""
    if status in LIVE:
        raise UsageError(f"only done, failed or cancelled jobs can be pruned, not {status} ones")
