"""SQLite's errors, in the words of core/errors: what may be tried again, and what will be refused again."""

from __future__ import annotations

import sqlite3

from mulligan.core.errors import MulliganError, SchemaMismatch, StoreError, StoreRejected, StoreUnavailable

# What the driver raises on top of sqlite3.Error when a value cannot be bound: a lone surrogate, an integer beyond 64 bits.
DRIVER_ERRORS = (sqlite3.Error, UnicodeError, OverflowError)

# The data is at fault: a repeat would fail again, and a batch must be split to find it.
_REJECTED = {sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_RANGE, sqlite3.SQLITE_ERROR}

# The file or the machine is at fault, never the data. That includes corruption: nothing may be declared failed because of it.
_ADVICE = {
    sqlite3.SQLITE_BUSY: "another connection holds its write lock; end the transaction that was left open, or raise busy_timeout_s",
    sqlite3.SQLITE_LOCKED: "another connection holds its write lock; end the transaction that was left open, or raise busy_timeout_s",
    sqlite3.SQLITE_FULL: "the disk is full (or a limit of the file size is reached); free some space, nothing is lost meanwhile",
    sqlite3.SQLITE_READONLY: "the file or its folder has become read-only; give this user the right to write there",
    sqlite3.SQLITE_IOERR: "the disk reports an error; see the system log",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; see whether the folder exists, and whether this user may write there",
    sqlite3.SQLITE_CORRUPT: "the file is damaged; stop the workers and restore a backup, or save what is left with sqlite3's .recover",
    sqlite3.SQLITE_NOTADB: "the file is no longer a SQLite database; stop the workers and restore a backup",
}


def translated(problem: Exception, path: str) -> MulliganError:
    """The error to raise instead of a driver's; errors of our own pass unchanged."""
    if isinstance(problem, MulliganError):
        return problem
    if not isinstance(problem, sqlite3.Error):
        return StoreRejected(f"SQLite cannot store this value: {problem}")
    code = primary_code(problem)
    if code is None:  # raised by the driver itself, about a value it cannot bind
        return StoreRejected(f"SQLite cannot store this value: {problem}")
    if code == sqlite3.SQLITE_ERROR and "no such table: mulligan_" in str(problem):
        return SchemaMismatch(f"{path}: {problem}; run `mulligan migrate`, or open the store once to create its tables")
    if code in _REJECTED:
        return StoreRejected(f"{path}: SQLite refuses this write: {problem}")
    return _unavailable(problem, code, path)


def primary_code(problem: Exception) -> int | None:
    """SQLite's primary result code, if the error came from SQLite."""
    code = getattr(problem, "sqlite_errorcode", None)
    return None if code is None else int(code) & 0xFF


def _unavailable(problem: sqlite3.Error, code: int, path: str) -> StoreError:
    advice = _ADVICE.get(code)
    return StoreUnavailable(f"{path}: {problem}" + (f": {advice}" if advice else ""))
