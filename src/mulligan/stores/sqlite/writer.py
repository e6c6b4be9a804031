"""The writing thread: whatever waits is written together, in one transaction with one wait for the disk.

Each piece of work succeeds or fails alone. Mostly none fails, so they are first run together; if one does fail, all is undone and
they are run again, each under a savepoint of its own. Nobody gets an answer before the commit is on the disk.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sqlite3
from collections.abc import Callable
from typing import Any

from mulligan.core.clock import Clock
from mulligan.core.errors import StoreUnavailable
from mulligan.stores.sqlite.faults import DRIVER_ERRORS, translated
from mulligan.stores.sqlite.filelock import FileLock
from mulligan.stores.sqlite.hop import Hop, Item, Outside, Transaction, settle_future

GROUP_MAX = 64


class Writer(Hop):
    """The one connection of this store that writes. Every transaction of it happens under the file lock."""

    def __init__(self, path: str, clock: Clock, busy_timeout_s: float, announce: Callable[[], None]) -> None:
        self._path = path
        self._busy_timeout_s = busy_timeout_s
        self._announce = announce
        self._wakes = False
        self._groups = 0  # written so far
        self._held_back: Item | None = None  # work for outside a transaction that came while a group gathered
        self.lock: FileLock | None = None
        self.file_id: tuple[int, int] | None = None  # device and inode of the open file
        super().__init__("mulligan-sqlite-writer", clock)

    def _round(self) -> bool:
        item = self._held_back or self._inbox.get()
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
            answers = self._commit(items)
        except Exception as problem:  # noqa: BLE001 - whoever handed it over gets it
            for future, _ in items:
                future.set_exception(self._translate(problem))
            return
        finally:
            wakes, self._wakes = self._wakes, False
        if wakes:
            with contextlib.suppress(Exception):  # A hint that fails must not keep anybody from the answer.
                self._announce()
        for (future, _), answer in zip(items, answers, strict=True):
            if isinstance(answer, _Failed):
                future.set_exception(self._translate(answer.problem))
            else:
                future.set_result(answer)

    def _commit(self, items: list[Item]) -> list[Any]:
        """The answers of all items, after their common commit."""
        connection, lock = self.connection, self.lock
        if connection is None or lock is None:
            return [_run(item) for item in items]  # Each says for itself that the store is closed.
        lock.acquire(self._busy_timeout_s)
        try:
            self._check_file()
            lock.follow(self._busy_timeout_s)
            self._groups += 1
            if connection.in_transaction:  # A rollback that failed, such as on a broken disk, is made up for.
                connection.execute("ROLLBACK")
            connection.execute("BEGIN IMMEDIATE")
            try:
                answers = self._together(connection, items)
                connection.execute("COMMIT")
            except BaseException:
                # SQLite has already rolled back after some errors, such as a full disk.
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            return answers
        finally:
            lock.release()

    def _together(self, connection: sqlite3.Connection, items: list[Item]) -> list[Any]:
        answers = []
        for item in items:
            answer = _run(item)
            if isinstance(answer, _Failed):
                if len(items) == 1:
                    raise answer.problem
                return self._one_by_one(connection, items)
            answers.append(answer)
        return answers

    def _one_by_one(self, connection: sqlite3.Connection, items: list[Item]) -> list[Any]:
        self._wakes = False
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        connection.execute("BEGIN IMMEDIATE")
        answers = []
        for item in items:
            connection.execute("SAVEPOINT one")
            answer = _run(item)
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


def _run(item: Item) -> Any:
    try:
        return item[1]()
    except Exception as problem:  # noqa: BLE001 - whoever handed it over gets it
        return _Failed(problem)
