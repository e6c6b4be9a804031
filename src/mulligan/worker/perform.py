"""Calling a handler: async ones on the loop, sync ones in a thread, middleware around both."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from mulligan.core.codec import decode_payload
from mulligan.core.errors import BadPayload
from mulligan.core.job import Job
from mulligan.worker.context import Context
from mulligan.worker.receipts import ReceiptBook
from mulligan.worker.registry import TaskDef
from mulligan.worker.threads import InterruptibleCall, JobInterrupted

log = logging.getLogger("mulligan.executor")
CallNext = Callable[[], Awaitable[Any]]
Middleware = Callable[[Context, CallNext], Awaitable[Any]]
THREAD_STOP_S = 5.0  # how long a thread gets to obey an interruption before it is given up


class ThreadAbandoned(BaseException):
    """The thread of a sync handler did not stop when told to; its run is over, its code is not."""


class Undecodable(Exception):
    """The stored arguments are damaged: nothing was run, and no retry could mend it."""


@types.coroutine
def in_own_context(handler: Coroutine[Any, Any, Any], context: contextvars.Context) -> Generator[Any, Any, Any]:
    """Awaits the handler with context variables of its own.

    Slots run many jobs in one asyncio task. Stepping each handler inside a copied context keeps what one job sets
    from the next one, at a fraction of the price of a task per job.
    """
    step: Callable[[Any], Any] = handler.send
    value: Any = None
    while True:
        try:
            waited_for = context.run(step, value)
        except StopIteration as end:
            return end.value
        except GeneratorExit as error:  # of the handler's own making: it must not look like the end of the slot
            raise RuntimeError("the handler raised GeneratorExit") from error
        try:
            value = yield waited_for
            step = handler.send
        except GeneratorExit:
            handler.close()
            raise
        except BaseException as error:  # noqa: BLE001 - it is thrown into the handler, whose business it is
            value = error
            step = handler.throw


class Performer:
    """Turns a task and a job's context into the call of the user's code."""

    def __init__(
        self,
        middleware: Sequence[Middleware],
        threads_max: int,
        thread_stop_s: float | None = THREAD_STOP_S,
        book: ReceiptBook | None = None,
    ) -> None:
        self.book = book  # where handlers keep receipts
        self._middleware = tuple(reversed(middleware))
        self.has_middleware = bool(self._middleware)
        self._threads_max = threads_max
        self._thread_stop_s = thread_stop_s  # None: a thread is never given up, since a supervisor ends the process instead
        self._threads = self._new_threads()

    def _new_threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._threads_max, thread_name_prefix="mulligan-handler")

    def call(self, task: TaskDef, job: Job, context: Context | None) -> Awaitable[Any]:
        """The handler's run, to be awaited to its end: its return value, or whatever it raises."""
        try:
            payload = decode_payload(job.payload)
        except BadPayload as problem:
            raise Undecodable(str(problem)) from None
        assert task.function is not None
        arguments = [context, *payload.args] if task.wants_context else payload.args
        if self._middleware:
            assert context is not None
            return self._through_middleware(task, context, arguments, payload.kwargs)
        if task.is_async:
            return in_own_context(task.function(*arguments, **payload.kwargs), contextvars.copy_context())
        return self._in_thread(functools.partial(task.function, *arguments, **payload.kwargs), job)

    async def _through_middleware(self, task: TaskDef, context: Context, arguments: list[Any], kwargs: dict[str, Any]) -> Any:
        function = task.function
        assert function is not None

        async def innermost() -> Any:
            if task.is_async:
                return await function(*arguments, **kwargs)
            return await self._in_thread(functools.partial(function, *arguments, **kwargs), context.job)

        call: CallNext = innermost
        for layer in self._middleware:
            call = functools.partial(layer, context, call)
        return await in_own_context(_awaited(call), contextvars.copy_context())

    async def _in_thread(self, function: Callable[[], Any], job: Job) -> Any:
        call = InterruptibleCall(function)
        future = asyncio.get_running_loop().run_in_executor(self._threads, contextvars.copy_context().run, call)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            call.interrupt()
            await asyncio.wait({future}, timeout=self._thread_stop_s)
            if not future.done():
                future.add_done_callback(_forget_outcome)
                log.warning("the thread of %s %s does not stop; it keeps running unwatched", job.task, job.id)
                self._replace_threads()
                raise ThreadAbandoned from None
            if isinstance(future.exception(), JobInterrupted):
                raise
            return future.result()  # it had ended by itself, in a result or an error of its own

    def _replace_threads(self) -> None:
        """New threads for the calls to come: the one that does not stop would be missing, and they would wait in vain."""
        self._threads.shutdown(wait=False)  # what runs or waits there goes on
        self._threads = self._new_threads()

    def close(self) -> None:
        """Lets idle threads end; does not wait for busy ones."""
        self._threads.shutdown(wait=False, cancel_futures=True)


async def _awaited(call: CallNext) -> Any:
    return await call()


def _forget_outcome(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()
