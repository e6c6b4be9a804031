"""What a handler may know of its own run, when its first parameter is annotated as Context."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from mulligan.core.clock import us_to_datetime
from mulligan.core.job import Job
from mulligan.worker.steps import Once, Step, Steps
from mulligan.worker.sync_steps import SyncOnce

if TYPE_CHECKING:
    from mulligan.worker.receipts import ReceiptBook


class Context(Once):
    """One execution of one job. Made by the worker, handed to the handler and to middleware."""

    __slots__ = ("_book", "_cancelled", "_deadline_us", "_steps", "job", "state")

    def __init__(self, job: Job, state: Any, deadline_us: int | None = None, book: ReceiptBook | None = None) -> None:
        self.job = job
        self.state = state  # what start-up hooks put on app.state
        self._book = book  # where receipts are kept; None: in a call without a queue, which keeps none
        self._deadline_us = deadline_us
        self._cancelled = False
        self._steps: Steps | None = None  # made by the first step

    @property
    def fence(self) -> int:
        """Rises with every claim of this job; a sink that refuses lower ones is safe from stale runs."""
        return self.job.fence

    @property
    def idempotency_key(self) -> str:
        """The same in every attempt of this generation; record it with the effect to make the effect happen once."""
        return self.job.idempotency_key

    @property
    def attempt(self) -> int:
        """Which execution this is, from 1."""
        return self.job.attempts

    @property
    def deadline(self) -> datetime | None:
        """When the time-out of this execution falls, on the store's clock; None without a time-out."""
        return None if self._deadline_us is None else us_to_datetime(self._deadline_us)

    @property
    def cancelled(self) -> bool:
        """True once this run should stop: cancelled, timed out, lease lost or shutting down. Threads should look at it now and then."""
        return self._cancelled

    def mark_cancelled(self) -> None:
        """Called by the worker when the run should stop."""
        self._cancelled = True
        if self._steps is not None:
            self._steps.stop()

    @property
    def sync(self) -> SyncOnce:
        """`once` for sync handlers; blocks their thread."""
        return SyncOnce(self._book, self._own_steps, lambda: self._cancelled)

    def _own_steps(self) -> Steps:
        """The steps of this run; on the worker's loop only."""
        assert self._book is not None
        if self._steps is None:
            self._steps = Steps(self.job, self._book)
        return self._steps

    def _step(self, name: str) -> Step:
        return Step(name, None if self._book is None else self._own_steps())
