"""The writing connection: whatever waits is written together, in one transaction with one wait for the disk.

A thread of its own writes what is handed over. A caller without an event loop writes by itself if nobody else does just then; who has
the turn has the connection.

Each piece of work succeeds or fails alone. Mostly none fails, so they are first run together; if one does fail, all is undone and
they are run again, each under a savepoint of its own. Nobody gets an answer before the commit is on the disk.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, TypeVar, cast

from mulligan.core.clock import Clock
from mulligan.core.errors import IllegalMove, StoreUnavailable
from mulligan.core.waiting import Waiting
from mulligan.stores.sqlite.faults import DRIVER_ERRORS, translated
from mulligan.stores.sqlite.filelock import FileLock
from mulligan.stores.sqlite.hop import Hop, Item, Outside, Transaction, settle_future

T = TypeVar("T")
GROUP_MAX = 64
_interrupted: ContextVar[object] = ContextVar("the write that is interrupted by whoever waits for what happens here", default=None)
_INTERRUPTS = "a signal handler or a destructor may not write while it interrupts a write of its own thread"


class Writer(Hop):
    """The one connection of this store that writes, used by one thread at a time. Its transactions happen under the file lock."""

    def __init__(self, path: str, clock: Clock, busy_timeout_s: float, announce: Callable[[], None]) -> None:
        self._path = path
        self._busy_timeout_s = busy_timeout_s
        self._announce = announce
        self._wakes = False
        self._groups = 0  # written so far
        self._turn = threading.RLock()  # whoever uses the connection has it
        self._own_write: tuple[int] | None = None  # that of a caller who has the turn, while he is in the middle of it, by his thread
        self._is_awaited = False  # the writing thread waits for the turn
        self._held_back: Item | None = None  # work for outside a transaction that came while a group gathered
        self.lock: FileLock | None = None
        self.file_id: tuple[int, int] | None = None  # device and inode of the open file
        super().__init__("mulligan-sqlite-writer", clock)

    def run_now(self, work: Callable[[Transaction], T]) -> T:
        """The answer of a piece of work, for a caller without an event loop.

        While nobody else writes or waits, the caller's thread does it itself: to hand it over and wait would take longer than to do it.
        Otherwise it is handed over, and written together with what else has gathered.
        """
        self.check_process()
        if threading.get_ident() == self._thread.ident:  # which cannot wait for itself either
            raise IllegalMove(_INTERRUPTS)
        piece = self.within(work)
        try:
            if self._turn.acquire(blocking=False):
                if self._own_write is not None:
                    raise IllegalMove(_INTERRUPTS)
                if not self._is_awaited and self._inbox.empty():
                    return cast("T", self._alone(piece))
        finally:
            # A signal's handler may raise anywhere, also between the lock and its try: so who holds it is asked of the lock itself.
            try:  # noqa: SIM105 - suppress() is Python, before which a handler could raise and leave the lock taken for good
                self._turn.release()
            except RuntimeError:  # somebody else has it
                pass
        waiting = Waiting()
        self._hand_over((waiting, piece))
        return cast("T", waiting.result())

    def _alone(self, piece: Callable[[], Any]) -> Any:
        try:
            self._own_write = (threading.get_ident(),)
            [answer] = self._written([piece])
        except DRIVER_ERRORS as problem:
            raise self._translate(problem) from problem
        finally:
            self._own_write = None
        if isinstance(answer, _Failed):
            raise self._translate(answer.problem) from answer.problem
        return answer

    @contextlib.contextmanager
    def waited_for(self) -> Iterator[None]:
        """While this thread waits for what a loop does: if that interrupts a write of this thread, the loop's own writes are refused.

        The handler of a signal may read, or would otherwise wait for a loop that waits for the thread which it interrupts.
        """
        own = self._own_write
        if own is None or own[0] != threading.get_ident():
            yield
            return
        token = _interrupted.set(own)
        try:
            yield
        finally:
            _interrupted.reset(token)

    def check_may_wait(self) -> None:
        """IllegalMove where the turn is that of a thread which waits for this very call."""
        own = self._own_write
        if own is not None and _interrupted.get() is own:
            raise IllegalMove(_INTERRUPTS)

    def _hand_over(self, item: Item) -> None:
        self.check_may_wait()
        super()._hand_over(item)

    def _round(self) -> bool:
        item = self._held_back or self._inbox.get()
        self._is_awaited = True  # else callers who write themselves might take one turn after the other
        with self._turn:
            self._is_awaited = False
            return self._group(item)

    def _group(self, item: Item | None) -> bool:
        self._held_back = None
        items: list[Item] = []
        while item is not None:
            if isinstance(item[1], Outside):
                if items:
                    self._held_back = item
                else:
                    items.append(item)
                break
            items.append(item)
            if len(items) == GROUP_MAX:
                break
            try:
                item = self._inbox.get_nowait()
            except queue.Empty:
                break
        self._do([item for item in items if item[0].set_running_or_notify_cancel()])
        return item is not None

    def _do(self, items: list[Item]) -> None:
        if not items:
            return
        if isinstance(items[0][1], Outside):
            settle_future(*items[0], self._translate)
            return
        try:
            answers = self._written([work for _, work in items])
        except Exception as problem:  # noqa: BLE001 - whoever handed it over gets it
            for future, _ in items:
                future.set_exception(self._translate(problem))
            return
        for (future, _), answer in zip(items, answers, strict=True):
            if isinstance(answer, _Failed):
                future.set_exception(self._translate(answer.problem))
            else:
                future.set_result(answer)

    def _written(self, works: list[Callable[[], Any]]) -> list[Any]:
        """The answers of all works, after their common commit and the hint to sleepers."""
        try:
            answers = self._commit(works)
        finally:
            wakes, self._wakes = self._wakes, False
        if wakes:
            with contextlib.suppress(Exception):  # A hint that fails must not keep anybody from the answer.
                self._announce()
        return answers

    def _commit(self, works: list[Callable[[], Any]]) -> list[Any]:
        connection, lock = self.connection, self.lock
        if connection is None or lock is None:
            return [_run(work) for work in works]  # Each says for itself that the store is closed.
        try:
            lock.acquire(self._busy_timeout_s)
            self._check_file()
            lock.follow(self._busy_timeout_s)
            self._groups += 1
            if connection.in_transaction:  # A rollback that failed, such as on a broken disk, is made up for.
                connection.execute("ROLLBACK")
            connection.execute("BEGIN IMMEDIATE")
            answers = self._together(connection, works)
            connection.execute("COMMIT")
            return answers
        finally:
            # On a caller's thread the handler of a signal may raise anywhere between two steps of Python. These two calls are none, and
            # change nothing where nothing is open or held; SQLite has already rolled back after some errors, such as a full disk.
            try:
                connection.rollback()
            finally:
                lock.release()

    def _together(self, connection: sqlite3.Connection, works: list[Callable[[], Any]]) -> list[Any]:
        answers = []
        for work in works:
            answer = _run(work)
            if isinstance(answer, _Failed):
                if len(works) == 1:
                    raise answer.problem
                return self._one_by_one(connection, works)
            answers.append(answer)
        return answers

    def _one_by_one(self, connection: sqlite3.Connection, works: list[Callable[[], Any]]) -> list[Any]:
        self._wakes = False
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        connection.execute("BEGIN IMMEDIATE")
        answers = []
        for work in works:
            connection.execute("SAVEPOINT one")
            answer = _run(work)
            if isinstance(answer, _Failed):
                if not connection.in_transaction:
                    raise answer.problem  # It took the whole transaction with it, and so the work of the others too.
                connection.execute("ROLLBACK TO one")
            connection.execute("RELEASE one")
            answers.append(answer)
        return answers

    def _check_file(self) -> None:
        """What is written into a deleted file is gone with it, so nobody may be told for long that it was stored."""
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            raise StoreUnavailable(
                f"{self._path} was deleted while it was open; restore it and restart, or close and open the store"
            ) from None
        if (found.st_dev, found.st_ino) != self.file_id:
            raise StoreUnavailable(f"{self._path} was replaced by another file while it was open; close and open the store to use that one")

    def _note(self, transaction: Transaction) -> None:
        self._wakes = self._wakes or transaction.wakes

    def _translate(self, problem: Exception) -> Exception:
        return translated(problem, self._path) if isinstance(problem, DRIVER_ERRORS) else problem


class _Failed:
    """The answer of work that raised."""

    __slots__ = ("problem",)

    def __init__(self, problem: Exception) -> None:
        self.problem = problem


def _run(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except Exception as problem:  # noqa: BLE001 - whoever handed it over gets it
        return _Failed(problem)
