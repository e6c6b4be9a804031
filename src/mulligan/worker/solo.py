"""Jobs that run alone: which ones, and how a child that runs nothing else gets them.

A process that dies takes the blame to every job that had started in it. So a job that would be given up at its next crash, or has crashed
twice, next runs in a child where nothing else runs: only its own fault can then be charged to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from mulligan.core.job import Job
from mulligan.worker.executor import Executor
from mulligan.worker.policies import Policies
from mulligan.worker.store_time import StoreTime

ALONE_FROM_CRASHES = 2


def alone_rule(policies: Policies) -> Callable[[Job], bool]:
    """Tells whether a job has to run alone."""

    def must_run_alone(job: Job) -> bool:
        if job.crashes == 0:
            return False
        return job.crashes >= min(ALONE_FROM_CRASHES, policies.for_job(job).filled().max_crashes - 1)

    return must_run_alone


class Feeder:
    """What a child that runs jobs alone has in the place of a fetcher: it claims nothing, the supervisor brings what it is to run."""

    def __init__(self, executor: Executor, time: StoreTime) -> None:
        self._executor = executor
        self._time = time
        self._stopped = asyncio.Event()
        self.asleep = True
        self.is_claiming = False
        self.taken = 0
        self.on_empty: Callable[[], None] = lambda: None

    def feed(self, job: Job) -> None:
        """A job from the supervisor."""
        self.taken += 1
        self._time.set(job.read_at_us)
        self._executor.accept([job], 0.0)  # its lease is kept by the supervisor alone

    def progress(self) -> None:
        """Something changed in the executor, which is nothing to act on here."""

    def written(self) -> None:
        """Outcomes were written; likewise."""

    def stop(self) -> None:
        self._stopped.set()

    async def run(self) -> None:
        """Waits for the end."""
        await self._stopped.wait()
