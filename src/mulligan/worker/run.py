"""One claimed job in this process, and the table of all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Literal

from mulligan.core.change import Grip
from mulligan.core.job import Job
from mulligan.worker.context import Context

# Why a run was told to stop. "lost": another holder has it now, so its outcome must not be written.
StopReason = Literal["timeout", "cancel", "lost", "shutdown"]


class Run:
    """A claimed job from the claim's answer to the store's verdict."""

    __slots__ = ("context", "deadline", "grip", "holds_slot", "in_handler", "job", "slot", "started_at_us", "stop")

    def __init__(self, job: Job) -> None:
        self.job = job
        self.grip = (job.id, job.fence)
        self.started_at_us: int | None = None  # None: not started yet
        self.deadline: float | None = None  # on the loop's clock
        self.context: Context | None = None  # where somebody may look at it
        self.slot: asyncio.Task[None] | None = None
        self.in_handler = False
        self.holds_slot = False  # its slot stays empty until its retry is due
        self.stop: StopReason | None = None


class Holdings:
    """Every claim this process answers for: waiting for a slot, running, or waiting for its verdict.

    The keeper reads it from its own thread; copying a dict's values is atomic, so it needs no lock.
    """

    def __init__(self) -> None:
        self._runs: dict[tuple[str, int], Run] = {}

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, run: Run) -> None:
        self._runs[run.grip] = run

    def drop(self, run: Run) -> None:
        self._runs.pop(run.grip, None)

    def find(self, job_id: str, fence: int) -> Run | None:
        return self._runs.get((job_id, fence))

    def grips(self) -> list[Grip]:
        """What to renew."""
        return [Grip(*run.grip) for run in self.runs()]

    def runs(self) -> Iterable[Run]:
        return list(self._runs.values())
