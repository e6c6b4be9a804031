"""Counting queues without going through the table: along an index where jobs wait or run, by tally where they rest."""

from __future__ import annotations

from typing import Any

from mulligan.core.contract import QueueStats, RunningJob, Stats
from mulligan.stores.sqlite.hop import Transaction

# One pass along an index that has the order of the groups: about a fifth of a second for a million waiting jobs.
_WAITING = """
SELECT queue, lane, sum(run_at_us <= ?), sum(run_at_us > ?),
  min(iif(run_at_us <= ?, run_at_us, NULL)), min(iif(run_at_us > ?, run_at_us, NULL))
FROM mulligan_jobs INDEXED BY mulligan_jobs_due WHERE status = 'pending' AND ready = 0 GROUP BY queue, lane
"""
_MARKED = _WAITING.replace("mulligan_jobs_due", "mulligan_jobs_fifo").replace("ready = 0", "ready = 1")
_RUNNING = """
SELECT queue, count(*) OVER each_queue, sum(lease_expires_at_us <= ?) OVER each_queue, id, task, failures + crashes, lane, updated_at_us,
  row_number() OVER (PARTITION BY queue ORDER BY updated_at_us, id) AS place
FROM mulligan_jobs INDEXED BY mulligan_jobs_lease WHERE status = 'processing'
WINDOW each_queue AS (PARTITION BY queue)
"""
_LONGEST_RUNNING = f"SELECT * FROM ({_RUNNING}) WHERE place = 1"
_RESTING = "SELECT queue, status, jobs FROM mulligan_tallies WHERE jobs > 0"
_QUEUES = "SELECT queue, paused FROM mulligan_queues"


def stats(transaction: Transaction) -> Stats:
    """Every queue that has jobs or a stored setting, counted."""
    now_us = transaction.now_us
    queues: dict[str, dict[str, Any]] = {queue: {"paused": bool(paused)} for queue, paused in transaction.rows(_QUEUES)}
    for sql in (_WAITING, _MARKED):
        for queue, lane, ready, later, oldest_us, next_us in transaction.rows(sql, [now_us] * 4):
            figures = queues.setdefault(queue, {})
            _add(figures, f"{lane}_ready", ready)
            _add(figures, f"{lane}_later", later)
            _lower(figures, "oldest_ready_us", oldest_us)
            _lower(figures, "next_due_us", next_us)
    for queue, jobs, stuck, job_id, task, retry_count, lane, since_us, _ in transaction.rows(_LONGEST_RUNNING, (now_us,)):
        current = RunningJob(job_id=job_id, task=task, retry_count=retry_count, is_retry=lane == "retry", since_us=since_us)
        queues.setdefault(queue, {}).update(processing=jobs, stuck=stuck, current_job=current)
    for queue, status, jobs in transaction.rows(_RESTING):
        _add(queues.setdefault(queue, {}), status, jobs)
    known = set(QueueStats.__struct_fields__)
    return Stats(
        now_us=now_us,
        # A status or lane that a damaged row invents has no place among the figures.
        queues=[
            QueueStats(queue=queue, **{key: value for key, value in queues[queue].items() if key in known}) for queue in sorted(queues)
        ],
    )


def _add(figures: dict[str, Any], name: str, jobs: int) -> None:
    figures[name] = figures.get(name, 0) + jobs


def _lower(figures: dict[str, Any], name: str, time_us: int | None) -> None:
    if time_us is not None:
        figures[name] = min(time_us, figures.get(name, time_us))
