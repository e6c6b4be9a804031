"""What a store has between open and close: the file lock, the two threads with their connections, the wake-ups."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mulligan.core.clock import Clock
from mulligan.core.errors import BadSetting, IllegalMove, StoreUnavailable
from mulligan.stores.sqlite.connection import Durability, connect, create_file, opening_error
from mulligan.stores.sqlite.filelock import FileLock
from mulligan.stores.sqlite.hop import Hop, Outside, Transaction
from mulligan.stores.sqlite.migrations import migrate, missing, schema_version
from mulligan.stores.sqlite.reader import Reader
from mulligan.stores.sqlite.version import wal_reset_bug
from mulligan.stores.sqlite.wake import Wakeups
from mulligan.stores.sqlite.writer import Writer

_SYNCHRONOUS = {0: "off", 1: "normal", 2: "full", 3: "extra"}


class Session:
    """One opening of the file by one process."""

    def __init__(self, path: Path, clock: Clock, durability: Durability, busy_timeout_s: float) -> None:
        self._path = path
        self._clock = clock
        self._durability: Durability = durability
        self._busy_timeout_s = busy_timeout_s
        self._wakeups: Wakeups | None = None
        self.writer = Writer(str(path), clock, busy_timeout_s, self._announce)
        self.reader = Reader(str(path), clock)

    @property
    def is_of_this_process(self) -> bool:
        """False in a child that was forked while the store was open."""
        return self.writer.is_of_this_process

    @property
    def is_started(self) -> bool:
        """Whether it got as far as being usable."""
        return self._wakeups is not None

    def check_process(self) -> None:
        """IllegalMove in a forked child: SQLite's connections must not be used there, nor even closed."""
        self.writer.check_process()

    @property
    def wakeups(self) -> Wakeups:
        """The ears of this store."""
        self.check_process()
        if self._wakeups is None:
            raise IllegalMove("this store is not open: await store.open() first")
        return self._wakeups

    async def start(self) -> None:
        """Opens both connections, each in its thread. Does nothing if that is done already."""
        await _outside(self.writer, self._start_writer)
        await _outside(self.reader, self._start_reader)

    async def stop(self) -> None:
        """Closes everything, after what was handed over before."""
        if self._wakeups is not None:
            self._wakeups.close()
        for hop, work in ((self.reader, self._stop_reader), (self.writer, self._stop_writer)):
            with contextlib.suppress(IllegalMove):  # stopped already
                await _outside(hop, work)
            hop.shutdown(wait=True)

    def _announce(self) -> None:
        if self._wakeups is not None:
            self._wakeups.announce()

    def _start_writer(self) -> None:
        if self.writer.connection is not None:
            return
        create_file(self._path)
        try:
            lock = FileLock(str(self._path))
        except OSError as problem:
            raise BadSetting(
                f"{self._path}-lock cannot be opened: {problem.strerror}; give this user the right to write that file and its folder"
            ) from problem
        try:
            lock.acquire(self._busy_timeout_s)
            try:
                self.writer.connection = self._open_current()
            finally:
                lock.release()
            found = os.stat(self._path)
            self.writer.lock, self.writer.file_id = lock, (found.st_dev, found.st_ino)
            self._wakeups = Wakeups(str(self._path), lock)
        except BaseException:
            if self.writer.connection is not None:
                self.writer.connection.close()
            self.writer.connection = self.writer.lock = None
            lock.close()
            raise

    def _open_current(self) -> sqlite3.Connection:
        """A connection for writing, to a file with the schema of this version."""
        connection = connect(self._path, durability=self._durability, busy_timeout_s=self._busy_timeout_s)
        try:
            if missing(connection):
                migrate(connection, self._clock.now_us())
        except sqlite3.Error as problem:
            connection.close()
            raise opening_error(problem, self._path) from problem
        except BaseException:
            connection.close()
            raise
        return connection

    def _start_reader(self) -> None:
        if self.reader.connection is None:
            self.reader.connection = connect(self._path, durability=self._durability, busy_timeout_s=self._busy_timeout_s, read_only=True)

    def _stop_reader(self) -> None:
        if self.reader.connection is not None:
            self.reader.connection.close()
            self.reader.connection = None

    def _stop_writer(self) -> None:
        connection, lock = self.writer.connection, self.writer.lock
        if connection is None or lock is None:
            return
        # The last connection to leave writes the log back into the file, which is a checkpoint and so needs the lock. Whoever keeps
        # the lock from us has a connection too, so that ours is not the last and can go without it.
        with contextlib.suppress(StoreUnavailable):
            lock.acquire(self._busy_timeout_s)
        try:
            connection.close()
        finally:
            self.writer.connection = self.writer.lock = None
            lock.close()  # which also lets go of it

    def describe(self, transaction: Transaction) -> dict[str, object]:
        """The file and the library as they are."""
        [journal_mode] = transaction.row("PRAGMA journal_mode")
        [synchronous] = transaction.row("PRAGMA synchronous")
        trouble = self.wakeups.trouble
        return {
            "path": str(self._path),
            "sqlite_version": sqlite3.sqlite_version,
            "wal_reset_bug": wal_reset_bug(sqlite3.sqlite_version_info),
            "file_lock": "on",
            "journal_mode": journal_mode,
            "synchronous": _SYNCHRONOUS.get(synchronous, str(synchronous)),
            "durability": self._durability,
            "schema_version": schema_version(transaction.connection),
            "file_bytes": _size(self._path),
            "wal_bytes": _size(Path(f"{self._path}-wal")),
            "hints": f"off: {trouble}" if trouble else "on",
        }


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


async def _outside(hop: Hop, work: Callable[[], Any]) -> Any:
    return await asyncio.get_running_loop().run_in_executor(hop, Outside(work))
