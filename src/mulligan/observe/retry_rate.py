"""The warning of a high retry rate: more than ten retries of one task within a minute, once per minute."""

from __future__ import annotations

import logging
from collections import deque

from mulligan.core.clock import SECOND_US
from mulligan.core.events import Event

WINDOW_US = 60 * SECOND_US
RETRIES_MAX = 10
log = logging.getLogger("mulligan.retries")


class RetryRateAlarm:
    """Counts RETRY_SCHEDULED per task in a sliding window and warns once per window."""

    kinds = ("RETRY_SCHEDULED",)

    def __init__(self, window_us: int = WINDOW_US, retries_max: int = RETRIES_MAX) -> None:
        self._window_us = window_us
        self._retries_max = retries_max
        self._recent: dict[str, deque[int]] = {}
        self._quiet_until: dict[str, int] = {}

    def on_event(self, event: Event) -> None:
        """The bus subscriber."""
        recent = self._recent.setdefault(event.task, deque(maxlen=100_000))
        recent.append(event.at_us)
        while recent and recent[0] <= event.at_us - self._window_us:
            recent.popleft()
        if len(recent) > self._retries_max and event.at_us >= self._quiet_until.get(event.task, 0):
            self._quiet_until[event.task] = event.at_us + self._window_us
            log.warning("High retry rate for %s: %d", event.task, len(recent), extra={"task": event.task, "retries": len(recent)})
