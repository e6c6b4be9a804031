"""One claimed job in this process, and the table of all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Literal

from mulligan.core.change import Grip
from mulligan.core.clock import SECOND_US
from mulligan.core.job import Job
from mulligan.core.outcome import CancelObeyed, Outcome, Released
from mulligan.worker.context import Context

# Why a run was told to stop. "lost": another holder has it now, so its outcome must not be written. The last two: it has to run alone,
# and the process for that is not there yet, or has enough to do.
StopReason = Literal["timeout", "cancel", "lost", "shutdown", "alone soon", "alone later"]

ALONE_SOON_US = SECOND_US // 2  # about what a process takes to start
ALONE_LATER_US = 5 * SECOND_US
SURE_OF_LEASE = 0.9  # how much of a lease a holder counts on: its clock may run a little slower than the store's


class Run:
    """A claimed job from the claim's answer to the store's verdict."""

    __slots__ = ("context", "deadline", "grip", "held_until_s", "holds_slot", "in_handler", "job", "slot", "started_at_us", "stop")

    def __init__(self, job: Job, held_until_s: float = float("inf")) -> None:
        self.job = job
        self.held_until_s = held_until_s  # on the loop's clock, counted from before the claim or its last renewal was sent
        self.grip = (job.id, job.fence)
        self.started_at_us: int | None = None  # None: not started yet
        self.deadline: float | None = None  # on the loop's clock
        self.context: Context | None = None  # where somebody may look at it
        self.slot: asyncio.Task[None] | None = None
        self.in_handler = False
        self.holds_slot = False  # its slot stays empty until its retry is due
        self.stop: StopReason | None = None

    def is_sure(self, now_s: float) -> bool:
        """Whether its lease still holds, as far as this process can be sure of it."""
        return now_s < self.held_until_s

    def begin(self) -> None:
        """Its handler is going to be called."""
        self.in_handler = True

    def end(self) -> None:
        """Its handler has ended, in whatever way."""
        self.in_handler = False


class Holdings:
    """Every claim this process answers for: waiting for a slot, running, or waiting for its verdict.

    The keeper reads it from its own thread; copying a dict's values is atomic, so it needs no lock.
    """

    def __init__(self) -> None:
        self._runs: dict[tuple[str, int], Run] = {}
        self.on_drop: Callable[[tuple[str, int]], None] | None = None  # a supervisor is told of what is no longer held

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, runs: Iterable[Run]) -> None:
        self._runs.update([(run.grip, run) for run in runs])

    def drop(self, run: Run) -> None:
        self._runs.pop(run.grip, None)
        if self.on_drop is not None:
            self.on_drop(run.grip)

    def find(self, job_id: str, fence: int) -> Run | None:
        return self._runs.get((job_id, fence))

    def grips(self) -> list[Grip]:
        """What to renew."""
        return [Grip(*run.grip) for run in self.runs()]

    def runs(self) -> Iterable[Run]:
        return list(self._runs.values())


def stopped_before_start(reason: StopReason) -> Outcome | None:
    """What becomes of a job that was told to stop before its handler was called; None: nothing of it may be written."""
    if reason == "lost":
        return None
    if reason == "cancel":
        return CancelObeyed("cancelled before it started")
    if reason == "alone soon":
        return Released("it has to run alone, in a process that is not there yet", ALONE_SOON_US)
    if reason == "alone later":
        return Released("it has to run alone, and others do", ALONE_LATER_US)
    return Released("the worker shut down")
