"""Looking at jobs: by id with their history, and by filter, newest first. And removing them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from mulligan.core.contract import FIND_LIMIT_MAX, Found, Query
from mulligan.core.errors import UsageError
from mulligan.core.job import LIVE, HistoryRecord, Job, Status
from mulligan.stores.postgres.database import Database, Transaction
from mulligan.stores.postgres.rows import COLUMNS, decode_shown

# So many of the newest jobs are looked at before an index is gone through: most often the wanted ones are among them.
GLANCE = 2_000

_NOW = "SELECT {s}.now_us($1)"
BY_ID = f"""
SELECT {", ".join(f"j.{name}" for name in COLUMNS)} FROM unnest($1::text[]) WITH ORDINALITY AS v(wanted, place),
  LATERAL (SELECT * FROM {{s}}.jobs k WHERE k.id = v.wanted OFFSET 0) AS j ORDER BY v.place
"""
_HISTORY = """
SELECT h.job_id, h.record, h.ended_at_us FROM unnest($1::text[]) AS v(wanted),
  LATERAL (SELECT * FROM {s}.history r WHERE r.job_id = v.wanted ORDER BY r.seq OFFSET 0) AS h ORDER BY h.job_id, h.seq
"""
_CONDITIONS = {
    "status": "status = ",
    "queue": "queue = ",
    "task": "task = ",
    "lane": "lane = ",
    "schedule": "schedule = ",
    "tag": "{s}.has_tag(tags, ",
}
# Which index to go through for a status. OFFSET 0 keeps the outer conditions and the order out, so that only that index is left.
_SOURCES: dict[Status, str] = {
    "pending": """(SELECT * FROM {s}.jobs WHERE status = 'pending' AND NOT ready AND job_group IS NULL
      UNION ALL SELECT * FROM {s}.jobs WHERE status = 'pending' AND ready
      UNION ALL SELECT * FROM {s}.jobs WHERE status = 'pending' AND job_group IS NOT NULL OFFSET 0)""",
    "processing": "(SELECT * FROM {s}.jobs WHERE status = 'processing' OFFSET 0)",
    "done": "(SELECT * FROM {s}.jobs WHERE status = 'done' AND finished_at_us IS NOT NULL OFFSET 0)",
    "failed": "(SELECT * FROM {s}.jobs WHERE status = 'failed' AND status IN ('failed', 'cancelled') ORDER BY id DESC)",
    "cancelled": "(SELECT * FROM {s}.jobs WHERE status = 'cancelled' AND status IN ('failed', 'cancelled') ORDER BY id DESC)",
}
_BY_SCHEDULE = "(SELECT * FROM {s}.jobs WHERE schedule IS NOT NULL AND schedule = $3 ORDER BY id DESC)"
_ALL = "{s}.jobs"
_NEWEST = "(SELECT * FROM {s}.jobs WHERE id < $1 ORDER BY id DESC LIMIT 2000)"
_AFTER_ALL = "\U0010ffff"  # sorts behind every id

_PRUNE = """
WITH old AS MATERIALIZED (
  SELECT l.id, l.queue FROM {s}.now_us($2) AS t(at_us), LATERAL (
    SELECT o.id, o.queue FROM {s}.jobs o WHERE o.finished_at_us IS NOT NULL AND o.status = $1 AND o.finished_at_us <= t.at_us - $3
    ORDER BY o.finished_at_us, o.id LIMIT $4 FOR UPDATE SKIP LOCKED) AS l
), gone AS (
  DELETE FROM {s}.jobs j USING old WHERE j.id = old.id RETURNING j.id, j.queue
), forgotten AS (
  DELETE FROM {s}.history h USING gone WHERE h.job_id = gone.id
), counted AS (
  INSERT INTO {s}.tallies (queue, status, jobs) SELECT g.queue, $1, -count(*) FROM gone g GROUP BY g.queue
)
SELECT count(*) FROM gone
"""

_record_decoder = msgspec.json.Decoder(HistoryRecord)


async def get(database: Database, ids: Sequence[str]) -> list[Job | None]:
    """The jobs with their histories, in the order of the ids; None where there is no such job."""
    now_us = database.now_us()
    wanted = list(dict.fromkeys(ids))

    async def work(transaction: Transaction) -> tuple[list[Any], list[Any], int]:
        rows = await transaction.rows(BY_ID, wanted)
        return rows, await transaction.rows(_HISTORY, wanted), await transaction.value(_NOW, now_us)

    rows, records, at_us = await database.reading(work)
    jobs = {job.id: job for job in decode_shown(rows, at_us)}
    histories: dict[str, list[HistoryRecord]] = {}
    for job_id, record, ended_at_us in records:
        histories.setdefault(job_id, []).append(_record_of(record, ended_at_us))
    for job_id, history in histories.items():
        if job_id in jobs:
            jobs[job_id] = msgspec.structs.replace(jobs[job_id], history=tuple(history))
    return [jobs.get(job_id) for job_id in ids]


def _record_of(text: str, ended_at_us: int | None) -> HistoryRecord:
    try:
        record = _record_decoder.decode(text)
        return record if ended_at_us is None else msgspec.structs.replace(record, ended_at_us=ended_at_us)
    except msgspec.DecodeError as problem:
        return HistoryRecord(generation=0, fence=0, attempt=0, outcome="undecodable", why=f"the stored record cannot be decoded: {problem}")


async def find(database: Database, query: Query, limit: int, after: str | None) -> Found:
    """One page of the jobs that match, newest first."""
    now_us = database.now_us()
    fields = {name: value for name in ("schedule", *_CONDITIONS) if (value := getattr(query, name)) is not None}
    params = [after or _AFTER_ALL, limit + 1, *fields.values()]

    async def work(transaction: Transaction) -> tuple[list[str], list[Any], int]:
        chosen: list[str] = []
        if query.status in ("pending", "done") and query.schedule is None:
            chosen = [row[0] for row in await transaction.rows(find_sql(_NEWEST, tuple(fields)), *params)]
        if len(chosen) <= limit:
            chosen = [row[0] for row in await transaction.rows(find_sql(_source_of(query), tuple(fields)), *params)]
        return chosen, await transaction.rows(BY_ID, chosen[:limit]), await transaction.value(_NOW, now_us)

    chosen, rows, at_us = await database.reading(work)
    return Found(jobs=decode_shown(rows, at_us), after=chosen[limit - 1] if len(chosen) > limit else None)


def check_limit(limit: int) -> None:
    """UsageError unless a page may be so long."""
    if not 1 <= limit <= FIND_LIMIT_MAX:
        raise UsageError(f"limit must be between 1 and {FIND_LIMIT_MAX}, not {limit}")


def _source_of(query: Query) -> str:
    if query.schedule is not None:
        return _BY_SCHEDULE
    return _ALL if query.status is None else _SOURCES[query.status]


@lru_cache(maxsize=512)
def find_sql(source: str, fields: tuple[str, ...]) -> str:
    """The ids of a page: $1 the id to go on below, $2 how many, then the values of the fields in their order."""
    conditions = "".join(f"{_CONDITIONS[name]}${place}{')' if name == 'tag' else ''} AND " for place, name in enumerate(fields, start=3))
    return f"SELECT id FROM {source} AS j WHERE {conditions}id < $1 ORDER BY id DESC LIMIT $2"


async def prune(database: Database, status: Status, older_than_us: int, limit: int) -> int:
    """Removes jobs that came to rest long enough ago, oldest first, with their histories; returns how many."""
    now_us = database.now_us()
    return int(await database.reading(lambda transaction: transaction.value(_PRUNE, status, now_us, older_than_us, max(0, limit))))


def check_prunable(status: Status) -> None:
    """UsageError if jobs of this status are alive."""
    if status in LIVE:
        raise UsageError(f"only done, failed or cancelled jobs can be pruned, not {status} ones")
