"""A job costs the event loop next to nothing: no task and no timer of its own, and hardly a callback."""

from __future__ import annotations

from pathlib import Path

import pytest

from mulligan import RetryPolicy
from tests.conftest import url_of
from tests.guards.counted_loop import CountedLoop, run_counted
from tests.guards.scene import JOBS, Scene

# Each of the hundred slots is a task, made once. What remains belongs to batches: a call of the store, its deadline, its answer.
TASKS_PER_JOB = 0.02  # measured 0.002
TIMERS_PER_JOB = 0.1  # measured 0.026, where each call has a deadline on this loop
# Slots that wake each other, and yield after 32 jobs: measured 0.14 at most. One for each job would be a detour of every job.
CALLBACKS_PER_JOB = 0.4


def counts_of_a_drain(backend: str, folder: Path, *, timeout: float | None) -> tuple[float, float, float]:
    """Tasks, timers and callbacks for each job. The first drain, in which the slots are made and connections opened, is not counted."""

    async def main(loop: CountedLoop) -> tuple[float, float, float]:
        async with Scene(url_of(backend, folder)) as scene:

            @scene.app.task(timeout=timeout, retry=RetryPolicy(max_retries=0))
            async def limited() -> None:
                return None

            async with scene.app.worker() as worker:
                for _ in range(2):
                    before = loop.counts
                    await scene.app.enqueue_many([limited.job() for _ in range(JOBS)])
                    await worker.drain()
            tasks, timers, callbacks = ((after - start) / JOBS for after, start in zip(loop.counts, before, strict=True))
            return tasks, timers, callbacks

    return run_counted(main)


@pytest.mark.parametrize("timeout", [None, 3_600.0])
def test_a_job_has_no_task_and_no_timer(backend: str, tmp_path: Path, timeout: float | None) -> None:
    """Slots take job after job, and one timer watches the time limits of all: also where every job has one."""
    tasks, timers, callbacks = counts_of_a_drain(backend, tmp_path, timeout=timeout)
    print(f"{backend}, time limit {timeout}: {tasks:.4f} tasks, {timers:.4f} timers, {callbacks:.3f} callbacks for each job")
    assert tasks <= TASKS_PER_JOB
    assert timers <= TIMERS_PER_JOB
    assert callbacks <= CALLBACKS_PER_JOB
