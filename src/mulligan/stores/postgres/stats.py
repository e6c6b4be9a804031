"""Counting queues without going through the table: along an index where jobs wait or run, by tally where they rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mulligan.core.contract import DEPTH_MAX, Pulse, QueueStats, RunningJob, Stats
from mulligan.stores.postgres.database import Database, Transaction

_NOW = "SELECT {s}.now_us($1)"
WAITING = """
SELECT queue, lane, count(*) FILTER (WHERE run_at_us <= $1), count(*) FILTER (WHERE run_at_us > $1),
  min(run_at_us) FILTER (WHERE run_at_us <= $1), min(run_at_us) FILTER (WHERE run_at_us > $1)
FROM {s}.jobs WHERE status = 'pending' AND NOT ready AND job_group IS NULL GROUP BY queue, lane
"""
_MARKED = """
SELECT queue, lane, count(*) FILTER (WHERE run_at_us <= $1), count(*) FILTER (WHERE run_at_us > $1),
  min(run_at_us) FILTER (WHERE run_at_us <= $1), min(run_at_us) FILTER (WHERE run_at_us > $1)
FROM {s}.jobs WHERE status = 'pending' AND ready GROUP BY queue, lane
"""
_GROUPED = """
SELECT queue, lane, count(*) FILTER (WHERE run_at_us <= $1), count(*) FILTER (WHERE run_at_us > $1),
  min(run_at_us) FILTER (WHERE run_at_us <= $1), min(run_at_us) FILTER (WHERE run_at_us > $1)
FROM {s}.jobs WHERE status = 'pending' AND job_group IS NOT NULL GROUP BY queue, lane
"""
_RUNNING = """
SELECT r.queue, r.jobs, r.stuck, r.retries, r.id, r.task, r.retry_count, r.lane, r.updated_at_us FROM (
  SELECT queue, count(*) OVER each_queue AS jobs, count(*) FILTER (WHERE lease_expires_at_us <= $1) OVER each_queue AS stuck,
    count(*) FILTER (WHERE lane = 'retry') OVER each_queue AS retries, id, task, failures + crashes AS retry_count, lane, updated_at_us,
    row_number() OVER (PARTITION BY queue ORDER BY updated_at_us, id) AS place
  FROM {s}.jobs WHERE status = 'processing' WINDOW each_queue AS (PARTITION BY queue)) AS r
WHERE r.place = 1
"""
_RESTING = "SELECT queue, status, sum(jobs)::bigint FROM {s}.tallies WHERE status <> 'past' GROUP BY queue, status HAVING sum(jobs) > 0"
_QUEUES = "SELECT queue, paused FROM {s}.queues"
# Per line no more jobs than are worth counting. Of marked jobs those created first are looked at: the index has no other order.
PULSE = """
SELECT count(w.run_at_us), min(w.run_at_us) FROM {s}.now_us($1) AS t(at_us), unnest(ARRAY[0, 1, 2]) AS p(priority), LATERAL (
  (SELECT d.run_at_us FROM unnest(ARRAY['fresh', 'retry']) AS l(lane), LATERAL (
     SELECT j.run_at_us FROM {s}.jobs j WHERE j.status = 'pending' AND NOT j.ready AND j.job_group IS NULL AND j.queue = $2
       AND j.lane = l.lane AND j.priority = p.priority AND j.run_at_us <= t.at_us ORDER BY j.run_at_us, j.id LIMIT $3) AS d)
  UNION ALL
  (SELECT g.run_at_us FROM unnest(ARRAY['fresh', 'retry']) AS l(lane), LATERAL (
     SELECT j.run_at_us FROM {s}.jobs j WHERE j.status = 'pending' AND coalesce(j.job_group, '') <> '' AND j.queue = $2
       AND j.lane = l.lane AND j.priority = p.priority AND j.run_at_us <= t.at_us ORDER BY j.run_at_us LIMIT $3) AS g)
  UNION ALL
  (SELECT m.run_at_us FROM {s}.jobs m WHERE m.status = 'pending' AND m.ready AND m.queue = $2 AND m.priority = p.priority
     AND m.run_at_us <= t.at_us ORDER BY m.created_at_us, m.id LIMIT $3)) AS w
"""
_SAME_MOMENT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"


async def stats(database: Database) -> Stats:
    """Every queue that has jobs or a stored setting, counted."""
    given_us = database.now_us()
    return await database.reading(lambda transaction: _stats(transaction, given_us))


async def _stats(transaction: Transaction, given_us: int | None) -> Stats:
    await transaction.script(_SAME_MOMENT)
    now_us: int = await transaction.value(_NOW, given_us)
    queues: dict[str, dict[str, Any]] = {queue: {"paused": paused} for queue, paused in await transaction.rows(_QUEUES)}
    for sql in (WAITING, _MARKED, _GROUPED):
        for queue, lane, ready, later, oldest_us, next_us in await transaction.rows(sql, now_us):
            figures = queues.setdefault(queue, {})
            _add(figures, f"{lane}_ready", ready)
            _add(figures, f"{lane}_later", later)
            _lower(figures, "oldest_ready_us", oldest_us)
            _lower(figures, f"{lane}_oldest_us", oldest_us)
            _lower(figures, "next_due_us", next_us)
    for queue, jobs, stuck, retries, job_id, task, retry_count, lane, since_us in await transaction.rows(_RUNNING, now_us):
        current = RunningJob(job_id=job_id, task=task, retry_count=retry_count, is_retry=lane == "retry", since_us=since_us)
        queues.setdefault(queue, {}).update(processing=jobs, stuck=stuck, retries_running=retries, current_job=current)
    for queue, status, jobs in await transaction.rows(_RESTING):
        _add(queues.setdefault(queue, {}), status, jobs)
    known = set(QueueStats.__struct_fields__)
    return Stats(
        now_us=now_us,
        # A status or lane that a damaged row invents has no place among the figures.
        queues=[
            QueueStats(queue=queue, **{key: value for key, value in queues[queue].items() if key in known}) for queue in sorted(queues)
        ],
    )


async def pulse(database: Database, queues: Sequence[str]) -> list[Pulse]:
    """How many jobs of each queue are due, up to a bound, and since when the oldest is."""
    given_us = database.now_us()

    async def work(transaction: Transaction) -> list[Pulse]:
        found = []
        for queue in queues:
            jobs, oldest_us = await transaction.row(PULSE, given_us, queue, DEPTH_MAX)
            found.append(Pulse(queue=queue, depth=min(DEPTH_MAX, jobs), oldest_us=oldest_us))
        return found

    return await database.reading(work) if queues else []


def _add(figures: dict[str, Any], name: str, jobs: int) -> None:
    figures[name] = figures.get(name, 0) + jobs


def _lower(figures: dict[str, Any], name: str, time_us: int | None) -> None:
    if time_us is not None:
        figures[name] = min(time_us, figures.get(name, time_us))
