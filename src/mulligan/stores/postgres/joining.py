"""New jobs in a transaction of the caller's own, on a connection of the caller's own driver.

The drivers are told apart by the module their class comes from; none of them is imported here. Each speaks its own dialect of
placeholders: $1 (asyncpg), %s (psycopg), :p1 (SQLAlchemy).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from mulligan.core.contract import Inserted
from mulligan.core.errors import IllegalMove, MulliganError, SchemaMismatch, StoreRejected, StoreUnavailable, UsageError
from mulligan.core.job import NewJob
from mulligan.stores.postgres.database import Target, in_schema
from mulligan.stores.postgres.faults import translated, without_secrets
from mulligan.stores.postgres.insert import INSERT, PARAMETERS, answers_of, in_order, params_of, parts_of

_PLACE = re.compile(r"\$(\d+)")
_NO_TRANSACTION = "the connection is in no transaction to join: begin one first, and commit it afterwards"
_MISSING = ("42P01", "42883", "3F000")


def insert_in(connection: Any, target: Target, jobs: Sequence[NewJob], now_us: int | None) -> list[Inserted]:
    """Stores new jobs in the caller's open transaction: they are there if and when the caller commits."""
    kind = kind_of(connection)
    answers: dict[int, Inserted] = {}
    for places in parts_of(jobs):
        part = [jobs[place] for place in places]
        params = params_of(part, now_us, is_late=True)
        try:
            row = _psycopg(connection, target, params) if kind == "psycopg" else _alchemy(connection, target, params)
        except Exception as problem:
            raise _explained(problem, target) from problem
        answers.update(zip(places, answers_of(part, row[0], row[1]), strict=True))
    return in_order(answers)


async def insert_in_async(connection: Any, target: Target, jobs: Sequence[NewJob], now_us: int | None) -> list[Inserted]:
    """The same on an asynchronous connection."""
    kind = kind_of(connection)
    if kind in ("psycopg", "sqlalchemy"):
        raise UsageError(f"{type(connection).__name__} is not asynchronous; call insert_in(connection, jobs)")
    answers: dict[int, Inserted] = {}
    for places in parts_of(jobs):
        part = [jobs[place] for place in places]
        params = params_of(part, now_us, is_late=True)
        try:
            row = await _ASYNC[kind](connection, target, params)
        except Exception as problem:
            raise _explained(problem, target) from problem
        answers.update(zip(places, answers_of(part, row[0], row[1]), strict=True))
    return in_order(answers)


def is_async(connection: Any) -> bool:
    """Whether the answers of a connection have to be awaited; UsageError for one we do not know."""
    return kind_of(connection) in _ASYNC


def kind_of(connection: Any) -> str:
    """Which driver a connection is of, and whether it is asynchronous; UsageError for none we know."""
    for kind in type(connection).__mro__:
        module, name = kind.__module__, kind.__name__
        package = module.partition(".")[0]
        if package == "asyncpg" and name in ("Connection", "PoolConnectionProxy"):
            return "asyncpg"
        if package == "psycopg" and name in ("AsyncConnection", "Connection"):
            return "psycopg async" if name == "AsyncConnection" else "psycopg"
        if module.startswith("sqlalchemy.ext.asyncio") and name in ("AsyncConnection", "AsyncSession", "async_scoped_session"):
            return "sqlalchemy async"
        if package == "sqlalchemy" and name in ("Connection", "Session", "scoped_session"):
            return "sqlalchemy"
    raise UsageError(
        f"cannot insert through a {type(connection).__module__}.{type(connection).__name__}; give a connection of psycopg or asyncpg, "
        "or a connection or session of SQLAlchemy"
    )


# -- One way for each kind of connection ------------------------------------------------------------------------------


def _check_psycopg(connection: Any) -> None:
    # 0: idle. Without autocommit the driver begins a transaction by itself, with our statement.
    if connection.autocommit and int(connection.info.transaction_status) == 0:
        raise IllegalMove(f"{_NO_TRANSACTION} (with connection.transaction(): ...)")


def _psycopg(connection: Any, target: Target, params: list[Any]) -> Sequence[Any]:
    _check_psycopg(connection)
    cursor = _plain_cursor(connection)
    try:
        cursor.execute(_sql("%s", target.schema), params)
        row: Sequence[Any] = cursor.fetchone()
    finally:
        cursor.close()
    return row


async def _psycopg_async(connection: Any, target: Target, params: list[Any]) -> Sequence[Any]:
    _check_psycopg(connection)
    cursor = _plain_cursor(connection)
    try:
        await cursor.execute(_sql("%s", target.schema), params)
        row: Sequence[Any] = await cursor.fetchone()
    finally:
        await cursor.close()
    return row


def _plain_cursor(connection: Any) -> Any:
    """A cursor whose rows are tuples, whatever the caller's connection makes of rows."""
    return connection.cursor(row_factory=lambda _: tuple)


async def _asyncpg(connection: Any, target: Target, params: list[Any]) -> Sequence[Any]:
    if not connection.is_in_transaction():
        raise IllegalMove(f"{_NO_TRANSACTION} (async with connection.transaction(): ...)")
    row: Sequence[Any] = await connection.fetchrow(in_schema(INSERT, target.schema), *params)
    return row


def _alchemy(connection: Any, target: Target, params: list[Any]) -> Sequence[Any]:
    row: Sequence[Any] = connection.execute(*_alchemy_call(connection, target, params)).fetchone()
    return row


async def _alchemy_async(connection: Any, target: Target, params: list[Any]) -> Sequence[Any]:
    row: Sequence[Any] = (await connection.execute(*_alchemy_call(connection, target, params))).fetchone()
    return row


def _alchemy_call(connection: Any, target: Target, params: list[Any]) -> tuple[Any, dict[str, Any]]:
    from sqlalchemy import text  # the caller has it, or there would be no such connection

    dialect = connection.get_bind().dialect if hasattr(connection, "get_bind") else connection.dialect
    if dialect.name != "postgresql":
        raise UsageError(f"this store is in PostgreSQL, the connection is to {dialect.name}")
    return text(_sql(":", target.schema)), {f"p{place}": value for place, value in enumerate(params, start=1)}


_ASYNC: dict[str, Callable[[Any, Target, list[Any]], Any]] = {
    "asyncpg": _asyncpg,
    "psycopg async": _psycopg_async,
    "sqlalchemy async": _alchemy_async,
}


@lru_cache(maxsize=64)
def _sql(dialect: str, schema: str) -> str:
    """The statement with the placeholders of a driver. Casts are written out as CAST, because SQLAlchemy takes a colon for its own."""
    sql = re.sub(r"\$(\d+)::(\w+(?:\[\])?)", r"CAST($\1 AS \2)", in_schema(INSERT, schema))
    found = [int(number) for number in _PLACE.findall(sql)]
    assert found == list(range(1, PARAMETERS + 1))
    return _PLACE.sub(lambda match: "%s" if dialect == "%s" else f":p{match.group(1)}", sql)


def _explained(problem: Exception, target: Target) -> MulliganError:
    """A driver's error in our words, by its SQLSTATE, whichever driver it came from."""
    if isinstance(problem, MulliganError):
        return problem
    cause = getattr(problem, "orig", None) or problem
    cause = getattr(cause, "__cause__", None) or cause
    code = getattr(cause, "sqlstate", None) or ""
    text = without_secrets(str(cause)).strip() or type(cause).__name__
    if type(cause).__module__.startswith("asyncpg."):
        return translated(cause, target.where)
    if code in _MISSING:
        return SchemaMismatch(f"{target.where}: {text}; run `mulligan migrate` on this database first")
    if code[:2] in ("22", "23", "42") or (not code and _is_about_a_value(cause)):
        return StoreRejected(f"{target.where} refuses this write: {text}")
    if code[:2] == "25":
        return IllegalMove(f"{target.where}: {text}: the caller's transaction has failed already; roll it back")
    return StoreUnavailable(f"{target.where}: {text}")


def _is_about_a_value(problem: BaseException) -> bool:
    """Whether a driver refuses a value by itself: a NUL, a lone surrogate, a number that is too large."""
    return isinstance(problem, ValueError | TypeError | OverflowError) or type(problem).__name__ == "DataError"
