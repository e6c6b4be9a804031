"""Whether the store answers: waits between repeats, and tells the world once when it goes and once when it comes back."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable

from mulligan.core.events import Event
from mulligan.observe.bus import EventBus

WAIT_MIN_S = 0.05
WAIT_MAX_S = 2.0  # below the promise to resume within five seconds of the store's return
log = logging.getLogger("mulligan.store")


class StoreHealth:
    """Shared by the loops of one worker."""

    def __init__(self, bus: EventBus, worker: str, rng: random.Random, now_us: Callable[[], int]) -> None:
        self._bus = bus
        self._worker = worker
        self._rng = rng
        self._now_us = now_us
        self._failures = 0

    @property
    def degraded(self) -> bool:
        return self._failures > 0

    def ok(self) -> None:
        """A call has succeeded."""
        if self._failures:
            self._failures = 0
            self._bus.publish([Event(kind="STORE_RECOVERED", at_us=self._now_us(), worker=self._worker)])

    async def failed(self, error: BaseException) -> None:
        """A call has failed: says so the first time, then waits, longer each time, before the caller may repeat it."""
        self._failures += 1
        if self._failures == 1:
            detail = {"error": str(error)[:500]}
            self._bus.publish([Event(kind="STORE_DEGRADED", at_us=self._now_us(), worker=self._worker, detail=detail)])
        longest = min(WAIT_MAX_S, WAIT_MIN_S * 2 ** min(self._failures, 10))
        await asyncio.sleep(self._rng.uniform(WAIT_MIN_S, longest))
