"""A virtual-time event loop: when every task waits, time jumps to the next timer. A simulated hour takes a moment.

Time does not move while work handed to a thread is under way (SQLite's writer, a sync handler), so the same code gives the same
times whatever the machine is doing.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, TypeVar

from mulligan.core.clock import SECOND_US

Result = TypeVar("Result")
STALLED_S = 20.0  # real seconds without any event after which waiting is given up


class _JumpingSelector(selectors.DefaultSelector):
    """Instead of waiting for a time to pass, moves the loop's clock to it."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if self.loop.in_threads or timeout is None:
            ready = super().select(STALLED_S)
            if not ready:
                raise RuntimeError("virtual time stands still: no timer is set and no thread has answered")
            return ready
        self.loop.virtual_s += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop. `virtual_s` is its time, from 0."""

    def __init__(self) -> None:
        self.virtual_s = 0.0
        self.in_threads = 0
        self._own_threads = ThreadPoolExecutor(4)
        selector = _JumpingSelector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.virtual_s

    def run_in_executor(self, executor: Executor | None, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        inner = (executor or self._own_threads).submit(func, *args)
        self.in_threads += 1
        answer = asyncio.wrap_future(inner, loop=self)
        # Added last, so that the answer is on its way to the loop before the loop may move on.
        inner.add_done_callback(lambda _: self.call_soon_threadsafe(self._thread_done))
        return answer

    def _thread_done(self) -> None:
        self.in_threads -= 1

    def close(self) -> None:
        self._own_threads.shutdown(wait=False)
        super().close()


class LoopClock:
    """A store's clock that follows a loop's time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, start_us: int = 1_700_000_000 * SECOND_US) -> None:
        self._loop = loop
        self._start_us = start_us

    def now_us(self) -> int:
        return self._start_us + round(self._loop.time() * SECOND_US)


def run_virtual(main: Callable[[LoopClock], Coroutine[Any, Any, Result]]) -> Result:
    """Runs a coroutine function under virtual time; it is given the clock to make its store with."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main(LoopClock(runner.get_loop())))
