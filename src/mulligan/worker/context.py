"""What a handler may know of its own run, when its first parameter is annotated as Context."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from mulligan.core.clock import us_to_datetime
from mulligan.core.job import Job


class Context:
    """One execution of one job. Made by the worker, handed to the handler and to middleware."""

    __slots__ = ("_cancelled", "_deadline_us", "job", "state")

    def __init__(self, job: Job, state: Any, deadline_us: int | None = None) -> None:
        self.job = job
        self.state = state  # what start-up hooks put on app.state
        self._deadline_us = deadline_us
        self._cancelled = False

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
