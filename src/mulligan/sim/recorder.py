"""Recorder: what a simulated fleet did: every execution with its lane, tenant and times. The same seed gives the same record."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

import msgspec

from mulligan.core.clock import SECOND_US, Clock
from mulligan.core.events import Event
from mulligan.core.job import Lane
from mulligan.observe.bus import EventBus
from mulligan.worker.context import Context
from mulligan.worker.perform import CallNext, Middleware


class Watched(Protocol):
    """What can be recorded: an app."""

    events: EventBus

    def use(self, middleware: Middleware) -> Middleware: ...


class Run(msgspec.Struct, gc=False):
    """One execution. Times in seconds since the recorder began; jobs are numbered as they were first seen to start."""

    job: int
    task: str
    queue: str
    tenant: str
    downstream: str
    lane: Lane
    attempt: int
    due_s: float
    start_s: float
    end_s: float = 0.0
    ok: bool = False

    @property
    def wait_s(self) -> float:
        """How long it was due before it started."""
        return self.start_s - self.due_s


class Recorder:
    """Watches one app, whose workers may be many. `runs` are in the order of their starts."""

    def __init__(self, app: Watched, clock: Clock) -> None:
        self._clock = clock
        self._origin_us = clock.now_us()
        self._numbers: dict[str, int] = {}
        self._retry_at_us: dict[str, int] = {}
        self._open = 0  # jobs enqueued that have not come to rest
        self._at_rest = asyncio.Event()
        self._at_rest.set()
        self.runs: list[Run] = []
        self.enqueued = 0
        self.failed = 0  # jobs that were given up, or cancelled
        self.turns: list[tuple[float, str]] = []  # what breakers did, and when
        app.use(self._watch)
        app.events.subscribe(self._on_enqueued, ("ENQUEUED",))
        app.events.subscribe(self._on_retry, ("RETRY_SCHEDULED",))
        app.events.subscribe(self._on_end, ("COMPLETED", "FAILED", "CANCELLED"))
        app.events.subscribe(self._on_turn, ("BREAKER_OPENED", "BREAKER_HALF_OPEN", "BREAKER_CLOSING", "BREAKER_CLOSED", "DOWNSTREAM_HELD"))

    async def wait_at_rest(self) -> None:
        """Returns when every job that was enqueued has succeeded or was given up."""
        await self._at_rest.wait()

    async def _watch(self, ctx: Context, call_next: CallNext) -> Any:
        job = ctx.job
        due_us = job.due_first_us if job.lane == "fresh" else self._retry_at_us.get(job.id, job.due_first_us)
        number = self._numbers.setdefault(job.id, len(self._numbers))
        run = Run(
            number,
            job.task,
            job.queue,
            job.fair_key or "",
            job.depends_on or "",
            job.lane,
            job.attempts,
            self._seconds(due_us),
            self._seconds(self._clock.now_us()),
        )
        self.runs.append(run)
        try:
            answer = await call_next()
            run.ok = True
            return answer
        finally:
            run.end_s = self._seconds(self._clock.now_us())

    def _on_enqueued(self, event: Event) -> None:  # noqa: ARG002 - one job, whichever
        self.enqueued += 1
        self._count(1)

    def _on_retry(self, event: Event) -> None:
        if (run_at_us := event.detail["run_at_us"]) is not None:
            self._retry_at_us[event.job_id] = run_at_us

    def _on_end(self, event: Event) -> None:
        if event.kind == "FAILED" and not event.detail["final"]:
            return
        self.failed += event.kind != "COMPLETED"
        self._count(-1)

    def _count(self, more: int) -> None:
        self._open += more  # below 0 for a moment where a job was quicker than the event of its enqueueing
        if self._open:
            self._at_rest.clear()
        else:
            self._at_rest.set()

    def _on_turn(self, event: Event) -> None:
        self.turns.append((self._seconds(event.at_us), event.kind))

    def _seconds(self, time_us: int) -> float:
        return (time_us - self._origin_us) / SECOND_US
