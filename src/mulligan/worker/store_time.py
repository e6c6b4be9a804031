"""The worker's estimate of the store's clock: the last time the store told, plus what has passed since on the loop's clock.

The store's clock alone judges what is due and what has lapsed. This estimate only stamps records and feeds the policy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from mulligan.core.clock import SECOND_US


class StoreTime:
    """Set by every claim; read by the executor and the sweeper."""

    def __init__(self) -> None:
        self._store_us = 0
        self._loop_s = 0.0
        self._loop_time: Callable[[], float] = float  # until set, no time passes

    def set(self, now_us: int) -> None:
        """The store has told its time."""
        self._store_us = now_us
        self._loop_time = asyncio.get_running_loop().time
        self._loop_s = self._loop_time()

    def now_us(self) -> int:
        """The store's time by now, as far as this process can tell."""
        return self._store_us + int((self._loop_time() - self._loop_s) * SECOND_US)
