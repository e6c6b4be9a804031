"""An event loop that counts what it is given: tasks, timers, and callbacks to run soon."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class CountedLoop(asyncio.SelectorEventLoop):
    """Counts from the beginning; whoever compares takes differences."""

    def __init__(self) -> None:
        self.tasks = 0
        self.timers = 0
        self.callbacks = 0
        super().__init__()

    def create_task(self, coro: Any, **settings: Any) -> asyncio.Task[Any]:  # type: ignore[override]
        self.tasks += 1
        return super().create_task(coro, **settings)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        self.timers += 1  # call_later comes through here as well
        return super().call_at(when, callback, *args, context=context)

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        self.callbacks += 1
        return super().call_soon(callback, *args, context=context)

    @property
    def counts(self) -> tuple[int, int, int]:
        """Tasks, timers and callbacks so far."""
        return self.tasks, self.timers, self.callbacks


def run_counted(main: Callable[[CountedLoop], Coroutine[Any, Any, Result]]) -> Result:
    """Runs a coroutine function on such a loop."""
    with asyncio.Runner(loop_factory=CountedLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, CountedLoop)
        return runner.run(main(loop))
