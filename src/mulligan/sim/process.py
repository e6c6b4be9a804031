"""Simulated processes on one loop: each can be stopped and let go on as by signals, or killed, with everything that runs in it.

What belongs to a process is told by a context variable: whatever its tasks schedule inherits it. A step of a process that stands still is
parked. It runs when the process goes on; that of a killed process never does. So no code of it notices anything, no `finally` runs, and
time passes meanwhile: what kill -9 and SIGSTOP do.
"""

from __future__ import annotations

import asyncio
import contextvars
import selectors
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Literal

State = Literal["running", "stopped", "dead"]
Step = tuple[Callable[..., Any], tuple[Any, ...], contextvars.Context]
GRID_S, DIGITS = 1e-9, 9  # time moves by whole steps of this, or what is left of a wait could be too short to be waited for
END_ROUNDS = 50  # of cancelling what is left when a world ends


class Standstill(RuntimeError):
    """Everything waits, and for nothing."""


class Process:
    """One process: its number, its state, and the steps that wait for it to go on."""

    def __init__(self, number: int, rate: float = 1.0, offset_s: float = 0.0) -> None:
        self.number = number
        self.rate = rate  # of its clock, and how it is set
        self.offset_s = offset_s
        self.state: State = "running"
        self.parked: list[Step] = []
        self.disturbed_s = 0.0  # the last time, by the clock of the world, at which anything kept it from renewing its leases
        self.stood_s = 0.0  # the last time at which it stood still
        self.stopping = False  # told to shut down
        self.unheard: str | None = None  # the claim that it has sent and heard no answer to
        self.told_us = 0  # the store's time, as it was told when it last asked for it
        # By the number of a job, and fence: an id may come twice, where a late repeat stores a job anew that is done and pruned.
        self.lost: dict[tuple[int, int], float] = {}  # when it heard that it does not hold it any more
        self.sent: dict[tuple[int, int], str] = {}  # the settle id of the outcome it has sent
        self.remains: list[object] = []  # keeps the tasks of a killed one from being taken apart in the middle of a world


_process: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


def _grid(time_s: float) -> float:
    """The next time that the clock can show."""
    shown_s = round(time_s, DIGITS)
    return shown_s if shown_s >= time_s else round(shown_s + GRID_S, DIGITS)


class _StillSelector(selectors.DefaultSelector):
    """Never waits: moves the loop's time to the next timer instead. Nothing but the loop's own pipe is ever registered."""

    loop: SimLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Standstill("the simulation stands still: no timer is set and nothing is ready")
        if timeout > 0:
            self.loop.virtual_s = round(self.loop.virtual_s + timeout, DIGITS)
        return []


class _LocalTimer(asyncio.TimerHandle):
    """A timer that tells its time as its process sees it."""

    __slots__ = ()

    def when(self) -> float:
        process = self._context.get(_process)  # type: ignore[attr-defined]
        when: float = self._when  # type: ignore[attr-defined]
        return when if process is None else process.offset_s + when * process.rate


class SimLoop(asyncio.SelectorEventLoop):
    """A virtual-time loop of one thread that knows to which process each step belongs."""

    def __init__(self) -> None:
        self.virtual_s = 0.0
        selector = _StillSelector()
        selector.loop = self
        super().__init__(selector)
        self._clock_resolution = GRID_S / 2  # so that no timer fires before its time: while steps are ready, time does not move
        self.set_exception_handler(lambda *_: None)  # of tasks that ended with an error nobody asked for; the watch sees what matters

    def time(self) -> float:
        """The time as the process that asks sees it: its clock may be set otherwise, and run a little faster or slower."""
        process = _process.get()
        return self.virtual_s if process is None else process.offset_s + self.virtual_s * process.rate

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None) -> asyncio.Handle:  # type: ignore[override]
        process = _process.get() if context is None else context.get(_process)
        if process is None:
            return super().call_soon(callback, *args, context=context)
        context = context or contextvars.copy_context()
        return super().call_soon(self._step, process, callback, args, context, context=context)

    def call_soon_threadsafe(self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None) -> asyncio.Handle:  # type: ignore[override]
        return self.call_soon(callback, *args, context=context)  # there is one thread only

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        process = _process.get() if context is None else context.get(_process)
        if process is None:
            return super().call_at(_grid(when), callback, *args, context=context)
        context = context or contextvars.copy_context()
        timer = super().call_at(
            _grid((when - process.offset_s) / process.rate), self._step, process, callback, args, context, context=context
        )
        timer.__class__ = _LocalTimer
        return timer

    def run_in_executor(self, executor: Executor | None, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]  # noqa: ARG002
        """At once, on this thread: what a thread does in no time."""
        answer = self.create_future()
        try:
            answer.set_result(func(*args))
        except BaseException as error:  # noqa: BLE001 - it is the answer
            answer.set_exception(error)
        return answer

    def _step(self, process: Process, callback: Callable[..., Any], args: tuple[Any, ...], context: contextvars.Context) -> None:
        if process.state == "running":
            callback(*args)
        else:
            process.parked.append((callback, args, context))

    def go_on(self, process: Process) -> None:
        """Lets a stopped process go on where it stood."""
        process.state = "running"
        parked, process.parked = process.parked, []
        for callback, args, context in parked:
            self.call_soon(callback, *args, context=context)

    def kill(self, process: Process) -> None:
        """Nothing of it runs any more."""
        process.state = "dead"
        process.remains.extend(asyncio.all_tasks(self))

    def end(self, processes: list[Process]) -> None:
        """Takes apart what is left of a world, quietly."""
        try:
            for process in processes:
                self.go_on(process)
            for _ in range(END_ROUNDS):
                left = asyncio.all_tasks(self)
                if not left:
                    break
                for task in left:
                    task.cancel()
                self.run_until_complete(_turns(3))
        finally:
            self.close()


async def _turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def inside(process: Process, function: Callable[..., Any], *args: Any) -> Any:
    """Calls a function as a part of a process: the tasks it makes belong to it."""
    context = contextvars.copy_context()
    context.run(_process.set, process)
    return context.run(function, *args)


def current() -> Process | None:
    """The process whose code runs now; None for what belongs to the world itself."""
    return _process.get()
