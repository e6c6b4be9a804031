"""PostgreSQL's errors, in the words of core/errors: what may be tried again, and what will be refused again."""

from __future__ import annotations

import asyncio
import re

import asyncpg

from mulligan.core.errors import BadSetting, MulliganError, SchemaMismatch, StoreRejected, StoreUnavailable

CONFLICTS = ("40001", "40P01")  # serialisation failure, deadlock: the same transaction may go through the next time
_SECRET = re.compile(r"(//[^/@\s:]*:)[^@\s]*@|(password=)\S+", re.IGNORECASE)

# By the beginning of the SQLSTATE. The server or the machine is at fault, never the data.
_UNAVAILABLE = {
    "08": "the connection broke",
    "40": "too many transactions met at once",
    "53100": "its disk is full; free some space, nothing is lost meanwhile",
    "53200": "it is out of memory",
    "53300": "it has no connection left; raise max_connections, lower `connections` in the URL, or use a pooler",
    "53": "it lacks a resource for now",
    "55": "a lock could not be had in time, or the server is in recovery",
    "57014": "a statement took longer than the time-out; the server may be overloaded, or a lock may be held by a forgotten transaction",
    "57": "it is starting, stopping or restarting",
    "58": "its disk or operating system reports an error; see the server's log",
    "XX": "it reports an internal error, possibly a damaged disk; see the server's log",
    "25006": "it only reads: this is a standby, or default_transaction_read_only is on; connect to the primary",
    "25": "a transaction ended in the middle, such as by idle_in_transaction_session_timeout",
}
_REJECTED = ("22", "23", "54")  # a value, a constraint, a limit: a repeat would fail again, and a batch must be split to find it
_SETTINGS = {
    "28": "the server refuses this user: check user name and password in the URL, and pg_hba.conf",
    "3D": "there is no such database: create it (createdb), or correct the URL",
}
_MISSING = ("42P01", "42883", "42703", "3F000")  # table, function, column, schema


def translated(problem: Exception, where: str) -> MulliganError:
    """The error to raise instead of a driver's; errors of our own pass unchanged."""
    if isinstance(problem, MulliganError):
        return problem
    text = without_secrets(str(problem)) or type(problem).__name__
    if isinstance(problem, asyncpg.PostgresError):
        return _of_code(getattr(problem, "sqlstate", None) or "XX000", text, where)
    if isinstance(problem, asyncpg.exceptions.DataError | asyncpg.exceptions.UnsupportedClientFeatureError | UnicodeError | OverflowError):
        return StoreRejected(f"{where} cannot store this value: {text}")
    if isinstance(problem, asyncpg.exceptions.ClientConfigurationError):
        return BadSetting(f"{where}: {text}")
    if isinstance(problem, asyncpg.exceptions.InterfaceError | asyncpg.exceptions.InternalClientError | OSError | EOFError):
        return StoreUnavailable(
            f"{where} cannot be reached: {text}; check that PostgreSQL runs there and that host, port and network are right"
        )
    if isinstance(problem, asyncio.IncompleteReadError):
        return StoreUnavailable(f"{where}: the connection broke: {text}")
    return StoreUnavailable(f"{where}: {type(problem).__name__}: {text}")


def _of_code(code: str, text: str, where: str) -> MulliganError:
    for start, advice in _SETTINGS.items():
        if code.startswith(start):
            return BadSetting(f"{where}: {text}: {advice}")
    if code in _MISSING:
        return SchemaMismatch(f"{where}: {text}; run `mulligan migrate`, or open the store once to create its tables")
    if code == "42501":
        return StoreRejected(f"{where}: {text}: grant this role USAGE on the schema, and the rights to use its tables and functions")
    if code.startswith(_REJECTED):
        return StoreRejected(f"{where} refuses this write: {text}")
    for start, advice in _UNAVAILABLE.items():
        if code.startswith(start):
            return StoreUnavailable(f"{where}: {text}: {advice}")
    return StoreRejected(f"{where} refuses this: {text} ({code})")


def without_secrets(text: str) -> str:
    """An error's text without what a driver may have quoted from the URL."""
    return _SECRET.sub(lambda match: f"{match.group(1) or match.group(2)}***" + ("@" if match.group(1) else ""), text)
