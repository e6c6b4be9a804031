"""The same steps for sync handlers, which run in threads: `ctx.sync.once`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import wait
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, overload

from mulligan.core.errors import IllegalMove, UsageError
from mulligan.worker.receipts import ReceiptBook
from mulligan.worker.steps import Steps, StepValue
from mulligan.worker.threads import JobInterrupted, Uninterrupted

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
LOOK_S = 1.0  # how often a thread that waits makes sure that there is still somebody to answer
LAST_LOOKS = 3  # of a thread that was told to stop: longer than a last write (LAST_WRITE_S), shorter than a thread is waited for


class SyncStep(StepValue):
    """One step in place: `with ctx.sync.once("charge") as step`. Its value is stored when the block ends without an error."""

    def __init__(self, name: str, run: SyncOnce) -> None:
        super().__init__(name)
        self._run = run

    def __enter__(self) -> SyncStep:
        book = self._run.book
        if book is not None:
            if self._run.is_cancelled():
                raise JobInterrupted
            try:
                self._done, self._value = self._on_loop(book, self._begin())
            except JobInterrupted:  # the block is not entered, so nobody else would say that it is not under way
                if not book.loop.is_closed():
                    book.loop.call_soon_threadsafe(self._abandon)
                raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        book = self._run.book
        if book is None or self._done:
            return
        if error is None:
            self._value = self._on_loop(book, self._end())
        elif not book.loop.is_closed():
            book.loop.call_soon_threadsafe(self._abandon)

    async def _begin(self) -> tuple[bool, Any]:
        steps = self._run.steps()
        receipt = await steps.watched(steps.begin(self._name))
        return receipt is not None, None if receipt is None else steps.value_of(receipt)

    async def _end(self) -> Any:
        steps = self._run.steps()
        return steps.value_of(await steps.watched(steps.end(self._name, self._value), is_late=self._run.is_cancelled()))

    def _abandon(self) -> None:
        self._run.steps().abandon(self._name)

    def _stop(self) -> None:
        self._run.steps().stop()

    def _on_loop(self, book: ReceiptBook, work: Coroutine[Any, Any, T]) -> T:
        """Runs the work on the worker's loop and waits for its end; JobInterrupted then if the run should stop meanwhile.

        The thread does not leave before: its run would be settled, and a receipt that is still being written refused.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            work.close()
            raise IllegalMove("ctx.sync is for sync handlers; this thread runs an event loop: `await ctx.once(...)` instead")
        if book.loop.is_closed():
            work.close()
            raise JobInterrupted
        with Uninterrupted() as block:
            future = asyncio.run_coroutine_threadsafe(work, book.loop)
            looks = 0
            while not wait([future], LOOK_S).done:
                if book.loop.is_closed() or looks == LAST_LOOKS:
                    raise JobInterrupted
                if block.told:
                    looks += 1
                    book.loop.call_soon_threadsafe(self._stop)  # it may be the thread alone that was told, by middleware, say
        if future.cancelled():
            raise JobInterrupted
        return future.result()


class SyncOnce:
    """`ctx.sync`: what a sync handler may call in its thread."""

    __slots__ = ("book", "is_cancelled", "steps")

    def __init__(self, book: ReceiptBook | None, steps: Callable[[], Steps], is_cancelled: Callable[[], bool]) -> None:
        self.book = book  # None: in a call without a queue, which keeps none
        self.steps = steps  # of this run; on the worker's loop only
        self.is_cancelled = is_cancelled

    @overload
    def once(self, name: str, /) -> SyncStep: ...
    @overload
    def once(self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    def once(self, name: str, function: Callable[..., Any] | None = None, /, *args: Any, **kwargs: Any) -> Any:
        """As `ctx.once`, without await: `ctx.sync.once("charge", charge_card, 42)`, or in place `with ctx.sync.once("charge") as step`."""
        step = SyncStep(name, self)
        if function is None:
            return step
        if asyncio.iscoroutinefunction(function):
            raise UsageError(f"step {name!r}: a sync handler cannot await {function!r}; pass a plain function, or make the handler async")
        with step:
            if not step.done:
                step.value = function(*args, **kwargs)
        return step.value
