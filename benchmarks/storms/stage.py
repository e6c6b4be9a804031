"""Stage: a new app on a memory store under virtual time, with its recorder; and what a scene hands back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from random import Random
from typing import Any, NamedTuple, TypeVar

from mulligan import Context, Mulligan, RetryPolicy
from mulligan.core.clock import SECOND_US
from mulligan.sim.arrivals import feed
from mulligan.sim.chart import Chart
from mulligan.sim.recorder import Recorder
from mulligan.sim.service import Service
from mulligan.sim.virtual import LoopClock, run_virtual

Result = TypeVar("Result")
# The default backoff, 1 s doubling to 15 min with full jitter, and enough retries for an hour of failures.
PATIENT = RetryPolicy(max_retries=40)


class Figure(NamedTuple):
    """One number of a scene, and what it must not exceed (None: it is only shown)."""

    name: str
    value: float
    unit: str = ""
    at_most: float | None = None

    @property
    def holds(self) -> bool:
        """Whether it keeps its bound."""
        return self.at_most is None or self.value <= self.at_most


class Outcome(NamedTuple):
    """What a scene came to: its figures, and its plots by the names of their files."""

    figures: list[Figure]
    charts: dict[str, Chart]

    def value(self, name: str) -> float:
        """One figure by its name."""
        return next(figure.value for figure in self.figures if figure.name == name)


class Stage:
    """One app, its clock, its recorder, and chance by names: what one part of a scene draws does not move the others."""

    def __init__(self, app: Mulligan, clock: LoopClock, seed: int) -> None:
        self.app = app
        self.recorder = Recorder(app, clock)
        self._seed = seed

    def rng(self, name: str) -> Random:
        """The generator of that name."""
        return Random(f"{self._seed} {name}")

    def task(self, service: Service, **settings: Any) -> Any:
        """A task whose handler calls the service."""

        async def call(ctx: Context) -> None:
            await service.call(ctx.job)

        return self.app.task(**settings)(call)

    async def feed(self, times_s: Iterable[float], task: Any) -> None:
        """Enqueues a job of the task at each of the times."""
        await feed(self.app, times_s, lambda _: task.job())

    async def waiting_s(self, **query: Any) -> list[float]:
        """How long those jobs have waited that are due now and have not started."""
        now_us = await self.app.store.now_us()
        pending = [job async for job in self.app.jobs(status="pending", **query)]
        return [(now_us - job.run_at_us) / SECOND_US for job in pending if job.run_at_us is not None and job.run_at_us <= now_us]


def staged(scene: Callable[[Stage], Awaitable[Result]], *, seed: int, retry: RetryPolicy | None = PATIENT) -> Result:
    """Plays a scene on a new stage."""

    async def main(clock: LoopClock) -> Result:
        async with Mulligan("memory://", clock=clock, rng=Random(seed), retry=retry) as app:
            return await scene(Stage(app, clock, seed))

    return run_virtual(main)


def lost(recorder: Recorder) -> int:
    """Jobs that neither succeeded nor were given up, and jobs that succeeded twice."""
    done = [run.job for run in recorder.runs if run.ok]
    return (recorder.enqueued - recorder.failed - len(set(done))) + (len(done) - len(set(done)))
