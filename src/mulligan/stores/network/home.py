"""The thread a network driver lives in, with an event loop of its own.

A driver belongs to one event loop; a store is used from many (the worker's, the keeper's thread, the loop behind `app.sync`). So the
driver gets a loop that is nobody else's, and calls cross to it. It is an Executor, so that any loop hands work over by run_in_executor,
and a loop on virtual time can count what is under way. Work that was handed over is finished even if its caller has gone: a driver that
is interrupted in the middle of a call has to throw its connection away.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

from mulligan.core.errors import IllegalMove

T = TypeVar("T")


class Work:
    """A coroutine function as a plain callable: asyncio in debug mode refuses to hand a coroutine function to an executor."""

    def __init__(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._begin = begin

    def __call__(self) -> Any:
        return self._begin()


class Home(Executor):
    """One thread and its loop, started at once: working → stopped (finishes what was handed over before)."""

    def __init__(self, name: str) -> None:
        self._pid = os.getpid()
        self._door = threading.Lock()
        self._stopping = False
        self._loop = asyncio.new_event_loop()
        self._under_way: set[asyncio.Task[None]] = set()  # touched by the loop only
        # A daemon, because a program that forgets to close its store must still be able to end.
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._thread.start()

    @property
    def is_of_this_process(self) -> bool:
        """False in a forked child: the thread stayed with the parent."""
        return self._pid == os.getpid()

    def check_process(self) -> None:
        """IllegalMove in a forked child."""
        if not self.is_of_this_process:
            raise IllegalMove(
                f"this store was opened in process {self._pid} and not in this one, which was forked from it; "
                "await store.open() again here, or open the store after the fork"
            )

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Hands over a function that returns a coroutine; the future has the coroutine's answer."""
        self.check_process()
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()  # a caller that gives up does not interrupt the driver
        with self._door:
            if self._stopping:
                raise IllegalMove("this store is closed: await store.open() first")
            self._loop.call_soon_threadsafe(self._begin, future, lambda: fn(*args, **kwargs))
        return future

    async def run(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The answer of a coroutine that runs here, for a caller on any loop."""
        answer: T = await asyncio.get_running_loop().run_in_executor(self, Work(begin))
        return answer

    async def others_done(self, within_s: float) -> None:
        """Waits, at most so long, for what was handed over before; to be called from work on this loop."""
        others = self._under_way - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=within_s)

    def soon(self, call: Callable[[], object]) -> None:
        """Calls a plain function on the loop, some time; does nothing once stopped."""
        with self._door:
            if not self._stopping and self.is_of_this_process:
                self._loop.call_soon_threadsafe(call)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002 - the signature of Executor
        """Stops the thread after what was handed over so far."""
        with self._door:
            already, self._stopping = self._stopping, True
        if not already and self.is_of_this_process:
            self._loop.call_soon_threadsafe(self._end)
        if wait and self.is_of_this_process and threading.current_thread() is not self._thread:
            self._thread.join()

    def _begin(self, future: Future[Any], begin: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        task = self._loop.create_task(_answer(future, begin))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    def _end(self) -> None:
        if self._under_way:
            asyncio.gather(*self._under_way, return_exceptions=True).add_done_callback(lambda _: self._end())
        else:
            self._loop.stop()

    def _main(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            left = asyncio.all_tasks(self._loop)  # a driver's own tasks, should it have forgotten some
            for task in left:
                task.cancel()
            if left:
                self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()


async def _answer(future: Future[Any], begin: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    try:
        answer = await begin()
    except BaseException as problem:  # noqa: BLE001 - whoever handed it over gets it
        future.set_exception(problem if isinstance(problem, Exception) else IllegalMove("this store was closed in the middle of a call"))
    else:
        future.set_result(answer)
