"""Whole apps under virtual time: the real worker, policy and store; an hour of backoff takes a moment."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from mulligan import Mulligan
from mulligan.core.clock import SECOND_US
from mulligan.sim.virtual import LoopClock, run_virtual
from mulligan.worker.worker import Worker
from tests.conftest import url_of

Result = TypeVar("Result")


class Stage:
    """One app on one store under virtual time, with its clock."""

    def __init__(self, app: Mulligan, clock: LoopClock) -> None:
        self.app = app
        self.clock = clock
        self._start_us = clock.now_us()

    @property
    def elapsed_s(self) -> float:
        """Virtual seconds since the stage was set."""
        return (self.clock.now_us() - self._start_us) / SECOND_US

    def worker(self, **settings: Any) -> Worker:
        """A worker that stays on the virtual loop."""
        return self.app.worker(**{"keeper_thread": False, **settings})


def play(backend: str, folder: Path, scene: Callable[[Stage], Awaitable[Result]], **app_settings: Any) -> Result:
    """Sets the stage on a new store, plays the scene and gives back what it returns."""

    async def main(clock: LoopClock) -> Result:
        settings = {"clock": clock, "rng": random.Random(1), **app_settings}
        async with Mulligan(url_of(backend, folder), **settings) as app:
            return await scene(Stage(app, clock))

    return run_virtual(main)
