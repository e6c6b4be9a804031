"""Counting queues from their rows, one pass over all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from mulligan.core.contract import Promise, QueueState, QueueStats, RunningJob
from mulligan.core.job import LANES, Job


def count_queues(rows: Iterable[Job], states: Mapping[str, QueueState], now_us: int) -> list[QueueStats]:
    """The figures of every queue that has jobs or a stored setting, by name."""
    by_queue: dict[str, list[Job]] = {name: [] for name in states}
    for row in rows:
        by_queue.setdefault(row.queue, []).append(row)
    return [_count(name, by_queue[name], paused=name in states and states[name].paused, now_us=now_us) for name in sorted(by_queue)]


def _count(queue: str, rows: list[Job], *, paused: bool, now_us: int) -> QueueStats:
    counts: dict[str, Any] = {}
    ready: dict[str, list[int]] = {lane: [] for lane in LANES}
    later: list[int] = []
    running: list[Job] = []
    for row in rows:
        column: str = row.status
        if row.status == "processing":
            running.append(row)
        elif row.run_at_us is not None:
            is_ready = row.run_at_us <= now_us
            (ready[row.lane] if is_ready else later).append(row.run_at_us)
            column = f"{row.lane}_{'ready' if is_ready else 'later'}"
        counts[column] = counts.get(column, 0) + 1
    return QueueStats(
        queue=queue,
        paused=paused,
        stuck=sum(1 for row in running if row.lease_expires_at_us is not None and row.lease_expires_at_us <= now_us),
        retries_running=sum(1 for row in running if row.is_retry),
        oldest_ready_us=min(chain(*ready.values()), default=None),
        fresh_oldest_us=min(ready["fresh"], default=None),
        retry_oldest_us=min(ready["retry"], default=None),
        next_due_us=min(later, default=None),
        current_job=_longest(running),
        **counts,
    )


def _longest(running: list[Job]) -> RunningJob | None:
    if not running:
        return None
    job = min(running, key=lambda row: (row.updated_at_us, row.id))
    return RunningJob(
        job_id=job.id, task=job.task, retry_count=job.failures + job.crashes, is_retry=job.is_retry, since_us=job.updated_at_us
    )


PROMISE = Promise(
    durable=False,
    loss_window="everything, when the process ends: a memory store is for tests and for trying things out",
    fail_over="there is nothing to fail over to",
    clock="this process's clock",
)
