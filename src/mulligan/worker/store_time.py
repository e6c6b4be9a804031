"""The worker's estimate of the store's clock: the last time the store told, plus what has passed since on the loop's clock.

The store's clock alone judges what is due and what has lapsed. This estimate only stamps records and feeds the policy.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from mulligan.core.clock import SECOND_US


def loop_time() -> Callable[[], float]:
    """What tells the time of the loop that runs: the clock that a plain loop reads, without the detour through the loop."""
    loop = asyncio.get_running_loop()
    return time.monotonic if type(loop).time is asyncio.BaseEventLoop.time else loop.time


class StoreTime:
    """Set by every claim; read by the executor and the sweeper."""

    def __init__(self) -> None:
        self._store_us = 0
        self._loop_s = 0.0
        self._loop_time: Callable[[], float] = float  # until set, no time passes

    def set(self, now_us: int) -> None:
        """The store has told its time."""
        self._store_us = now_us
        self._loop_time = loop_time()
        self._loop_s = self._loop_time()

    def now_us(self) -> int:
        """The store's time by now, as far as this process can tell."""
        return self._store_us + int((self._loop_time() - self._loop_s) * SECOND_US)
