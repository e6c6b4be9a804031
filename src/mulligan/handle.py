"""Handles: what an enqueue gives back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from mulligan.core.clock import us_to_datetime
from mulligan.core.errors import JobCancelled, JobFailed, JobNotFound, ResultGone
from mulligan.core.job import Job
from mulligan.core.schedule import Schedule

if TYPE_CHECKING:
    from mulligan.app import Mulligan

R = TypeVar("R")
POLL_MIN_S = 0.002
POLL_MAX_S = 0.25


class Handle(Generic[R]):
    """One enqueued job. `created` is False where an earlier job with the same unique key stands for it."""

    def __init__(self, app: Mulligan, job_id: str, created: bool = True) -> None:
        self._app = app
        self.id = job_id
        self.created = created

    def __repr__(self) -> str:
        return f"Handle({self.id!r}, created={self.created})"

    async def job(self) -> Job:
        """The job as it is stored now."""
        return await self._app.get(self.id)

    async def result(self, timeout: float | None = None) -> R:
        """Waits for the job to end and returns what its handler returned.

        Raises JobFailed, JobCancelled, ResultGone (removed by retention before it was read), or TimeoutError.
        """
        job: Job | None = None
        pause_s = POLL_MIN_S
        try:
            async with asyncio.timeout(timeout):
                while True:
                    try:
                        job = await self._app.get(self.id)
                    except JobNotFound:
                        raise ResultGone(f"job {self.id} is no longer kept" if job else f"no job has the id {self.id}") from None
                    if job.status in ("done", "failed", "cancelled"):
                        return cast("R", outcome_of(job))
                    await asyncio.sleep(pause_s)
                    pause_s = min(pause_s * 1.5, POLL_MAX_S)
        except TimeoutError:
            state = "not read in time" if job is None else job.view
            raise TimeoutError(f"job {self.id} has not ended within {timeout} s ({state}); mulligan why {self.id} tells more") from None


def outcome_of(job: Job) -> Any:
    """The result of a finished job, or the error that tells how it ended."""
    if job.status == "done":
        return job.result
    if job.status == "cancelled":
        raise JobCancelled(f"job {job.id} was cancelled")
    error = job.last_error
    reason = f"{error.type}: {error.message}" if error else "no error was recorded"
    tries = "1 attempt" if job.attempts == 1 else f"{job.attempts} attempts"
    raise JobFailed(f"job {job.id} failed after {tries}: {reason}", error)


class ScheduleHandle:
    """One stored schedule."""

    def __init__(self, app: Mulligan, schedule: Schedule) -> None:
        self._app = app
        self.schedule = schedule
        self.name = schedule.name

    def __repr__(self) -> str:
        return f"ScheduleHandle({self.name!r})"

    def next_runs(self, count: int = 5) -> list[datetime]:
        """The next ticks as last read from the store."""
        first, interval = self.schedule.next_tick_us, self.schedule.interval_us
        return [us_to_datetime(first + position * interval) for position in range(count)]

    async def pause(self) -> bool:
        """Stops its ticks until `resume`; False if it no longer exists."""
        return await self._change(lambda: self._app.store.set_schedule_paused(self.name, True))

    async def resume(self) -> bool:
        """Lets it tick again; ticks that passed meanwhile follow its rule for missed ones."""
        return await self._change(lambda: self._app.store.set_schedule_paused(self.name, False))

    async def remove(self) -> bool:
        """Removes it; jobs it has made stay. False if it no longer existed."""
        return await self._change(lambda: self._app.store.remove_schedule(self.name))

    async def _change(self, call: Callable[[], Awaitable[bool]]) -> bool:
        await self._app.open()
        return await call()
