"""A thread that owns one connection, and the way to it: work is handed over, its answer comes back as a future.

A plain event loop is answered straight away. For any other the thread is an Executor, which every loop knows; one on virtual time counts
what is under way there. One piece of work is one whole transaction; nothing is ever left open between two of them.
"""

from __future__ import annotations

import asyncio
import os
import queue
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import partial
from typing import Any, ParamSpec, TypeVar

from mulligan.core.clock import Clock
from mulligan.core.errors import IllegalMove
from mulligan.core.waiting import Waiting
from mulligan.stores.sqlite.bulk import Params, portions

P = ParamSpec("P")
T = TypeVar("T")


class Transaction:
    """What a piece of work gets: the connection inside a transaction, and the one time at which all of it happens."""

    __slots__ = ("connection", "now_us", "wakes")

    def __init__(self, connection: sqlite3.Connection, now_us: int) -> None:
        self.connection = connection
        self.now_us = now_us
        self.wakes = False  # set by work that may have made a job claimable

    def run(self, sql: str, params: Params = ()) -> int:
        """Executes a statement that writes; how many rows it changed."""
        return self.connection.execute(sql, params).rowcount

    def run_rows(self, template: str, columns: int, rows: list[Params], before: Params = ()) -> int:
        """Executes a statement over many rows (bulk.py); how many rows it changed."""
        return sum(self.run(sql, params) for sql, params in portions(template, columns, rows, before))

    def texts(self, template: str, columns: int, rows: Sequence[Params], before: Params = ()) -> list[str]:
        """Executes a query over many rows (bulk.py) that answers with one text; as many texts as it takes statements."""
        return [str(self.row(sql, params)[0]) for sql, params in portions(template, columns, rows, before)]

    def row(self, sql: str, params: Params = ()) -> Any:
        """The one row of a query that always has one."""
        return self.connection.execute(sql, params).fetchone()

    def rows(self, sql: str, params: Params = ()) -> list[Any]:
        """All rows of a query; each costs a step, so not for jobs (rows.py)."""
        return self.connection.execute(sql, params).fetchall()


class Outside:
    """Work that is done alone and outside any transaction: opening, migrating, closing."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work

    def __call__(self) -> Any:
        return self._work()


class Crossing:
    """Where a thread leaves its answer for whoever waits on a plain event loop: as much of a Future as that takes, and no more."""

    __slots__ = ("future", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()

    def set_running_or_notify_cancel(self) -> bool:
        """Whether the answer is still wanted."""
        return not self.future.cancelled()

    def set_result(self, answer: Any) -> None:
        """Hands the answer over."""
        self._cross(answer, None)

    def set_exception(self, problem: BaseException) -> None:
        """Hands over what was raised."""
        self._cross(None, problem)

    def _cross(self, answer: Any, problem: BaseException | None) -> None:
        with suppress(RuntimeError):  # its loop was closed meanwhile; nobody is left to be told
            self.loop.call_soon_threadsafe(_land, self.future, answer, problem)


def _land(future: asyncio.Future[Any], answer: Any, problem: BaseException | None) -> None:
    if future.done():  # whoever waited was cancelled
        return
    if problem is None:
        future.set_result(answer)
    else:
        future.set_exception(problem)


Asker = Future[Any] | Crossing | Waiting
Item = tuple[Asker, Callable[[], Any]]


class Hop(Executor, ABC):
    """One thread, started at once: working → stopping (finishes what was handed over) → stopped."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._clock = clock
        self._pid = os.getpid()
        self._door = threading.Lock()
        self._stopping = False
        self._inbox: queue.SimpleQueue[Item | None] = queue.SimpleQueue()
        self.connection: sqlite3.Connection | None = None  # touched by the thread only
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

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Hands over a piece of work. It is called without a transaction of its own: see `within`."""
        self.check_process()
        future: Future[T] = Future()
        self._hand_over((future, partial(fn, *args, **kwargs) if args or kwargs else fn))
        return future

    async def run(self, work: Callable[[Transaction], T]) -> T:
        """The answer of a piece of work that was given a transaction, for a caller on an event loop."""
        loop = asyncio.get_running_loop()
        if type(loop).run_in_executor is not asyncio.BaseEventLoop.run_in_executor:  # one that counts, such as that on virtual time
            return await loop.run_in_executor(self, self.within(work))
        self.check_process()
        crossing = Crossing(loop)
        self._hand_over((crossing, self.within(work)))
        answer: T = await crossing.future
        return answer

    def _hand_over(self, item: Item) -> None:
        with self._door:
            if self._stopping:
                raise IllegalMove("this store is closed: await store.open() first")
            self._inbox.put(item)

    def within(self, work: Callable[[Transaction], T]) -> Callable[[], T]:
        """The work as something to submit: it will be given the transaction it runs in."""
        return partial(self._within, work)

    def _within(self, work: Callable[[Transaction], T]) -> T:
        if self.connection is None:
            raise IllegalMove("this store is closed: await store.open() first")
        transaction = Transaction(self.connection, self._clock.now_us())
        answer = work(transaction)
        self._note(transaction)
        return answer

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002 - the signature of Executor
        """Stops the thread after what was handed over so far."""
        with self._door:
            already, self._stopping = self._stopping, True
        if not already:
            self._inbox.put(None)
        if wait and self.is_of_this_process and threading.current_thread() is not self._thread:
            self._thread.join()

    def _main(self) -> None:
        running = True
        while running:
            running = self._round()

    def _round(self) -> bool:
        """Waits for work and does it; False when there will be no more."""
        item = self._inbox.get()
        if item is None:
            return False
        self._do([item])
        return True

    @abstractmethod
    def _do(self, items: list[Item]) -> None:
        """Does the work and answers each item's future."""

    def _note(self, transaction: Transaction) -> None:
        """Called after each piece of work that went well, before its commit."""


def settle_future(future: Asker, work: Callable[[], Any], translate: Callable[[Exception], Exception]) -> None:
    """Runs the work, and answers with what it returns or raises."""
    try:
        answer = work()
    except Exception as problem:  # noqa: BLE001 - whoever handed it over gets it
        future.set_exception(translate(problem))
    else:
        future.set_result(answer)
