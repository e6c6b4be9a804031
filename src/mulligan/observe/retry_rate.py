"""The warning of a high retry rate: more than ten retries of one task within a minute, once per minute."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence

from mulligan.core.clock import SECOND_US
from mulligan.core.events import Event, Row

WINDOW_US = 60 * SECOND_US
RETRIES_MAX = 10
_AT_US, _TASK = 1, 4  # the places in a row
log = logging.getLogger("mulligan.retries")


class RetryRateAlarm:
    """Counts RETRY_SCHEDULED per task in a sliding window and warns once per window."""

    kinds: tuple[str, ...] = ("RETRY_SCHEDULED",)

    def __init__(self, window_us: int = WINDOW_US, retries_max: int = RETRIES_MAX) -> None:
        self._window_us = window_us
        self._retries_max = retries_max
        self._recent: dict[str, deque[int]] = {}
        self._quiet_until: dict[str, int] = {}

    def on_event(self, event: Event) -> None:
        """One retry."""
        self._count(event.task, event.at_us)

    def on_rows(self, kind: str, rows: Sequence[Row]) -> None:  # noqa: ARG002 - there is one kind
        """Many retries at once."""
        for row in rows:
            self._count(row[_TASK], row[_AT_US])

    def _count(self, task: str, at_us: int) -> None:
        recent = self._recent.get(task)
        if recent is None:
            recent = self._recent[task] = deque(maxlen=100_000)
        recent.append(at_us)
        while recent[0] <= at_us - self._window_us:
            recent.popleft()
        if len(recent) > self._retries_max and at_us >= self._quiet_until.get(task, 0):
            self._quiet_until[task] = at_us + self._window_us
            log.warning("High retry rate for %s: %d", task, len(recent), extra={"task": task, "retries": len(recent)})
