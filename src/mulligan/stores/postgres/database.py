"""The server as the rest of the store sees it: statements in our schema, transactions, and conflicts repeated.

Behind a pooler that gives every transaction another connection (PgBouncer) nothing may be kept in a session: no prepared statements,
no settings, no LISTEN. There every call is one explicit transaction that brings its settings along.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeVar

import asyncpg

from mulligan.core.clock import Clock, system_rng
from mulligan.core.errors import BadSetting
from mulligan.stores.postgres.faults import CONFLICTS
from mulligan.stores.postgres.pool import Connection, Pool, keep_alive

T = TypeVar("T")
PoolerMode = Literal["auto", "on", "off"]
VERSION_MIN = 130_000
CONFLICT_REPEATS = 10
_CONFLICT_WAIT_S = 0.02
IDLE_MAX_MS = 500  # a client that stands still in a transaction of ours holds up others; it is cut off, and does it again
APPLICATION = "mulligan"


class Target(NamedTuple):
    """Where the store is, and how it is reached."""

    dsn: str  # with the password
    where: str  # for people
    schema: str
    timeout_s: float
    connections: int
    pooler: PoolerMode


@lru_cache(maxsize=4_096)
def in_schema(sql: str, schema: str) -> str:
    """A statement of ours for one schema; the same object each time, so that the driver finds it prepared."""
    return sql.replace("{s}", f'"{schema}"')


class Database:
    """An open store's connections. Touched by the home loop only."""

    def __init__(self, target: Target, clock: Clock | None) -> None:
        self.target = target
        self.schema = target.schema
        self.pooled = target.pooler == "on"  # whether there is a pooler in between
        self.version = 0
        self._clock = clock
        self._rng: random.Random = system_rng()
        self._milliseconds = max(100, int(target.timeout_s * 1000))
        self._idle_milliseconds = min(self._milliseconds, IDLE_MAX_MS)
        self.pool = Pool(self.connect, target.connections)

    def now_us(self) -> int | None:
        """The time of a test's clock; None where the server's own clock counts."""
        return None if self._clock is None else self._clock.now_us()

    # -- Connecting ---------------------------------------------------------------------------------------------------

    async def connect(self) -> Connection:
        """A new connection, set up for our use."""
        settings = {"application_name": APPLICATION}
        if not self.pooled:
            settings |= {
                "statement_timeout": str(self._milliseconds),
                "idle_in_transaction_session_timeout": str(self._idle_milliseconds),
                "default_transaction_isolation": "read committed",
                "jit": "off",
                "tcp_keepalives_idle": "10",
            }
        connection = await asyncpg.connect(
            self.target.dsn,
            timeout=self.target.timeout_s,
            statement_cache_size=0 if self.pooled else 200,
            server_settings=settings,
        )
        keep_alive(connection)
        return connection

    async def look(self) -> None:
        """Checks the server, and finds out whether a pooler stands in between."""
        try:
            async with self.pool.connection() as connection:
                behind = await self._is_behind_pooler(connection)
                self.version = await self._check_server(connection)
        except asyncpg.PostgresError as problem:
            # A pooler refuses to pass settings on to a connection that is not ours alone.
            if self.target.pooler != "auto" or self.pooled or "startup parameter" not in str(problem):
                raise
            self.pooled = True
            await self.look()
            return
        if behind and self.target.pooler == "auto" and not self.pooled:
            self.pooled = True
            self.pool.drop_idle()

    async def _is_behind_pooler(self, connection: Connection) -> bool:
        """A server tells its process id when it connects; a pooler tells one that is not the server's."""
        async with self._begun(connection):
            shown = await connection.fetchval("SELECT pg_backend_pid()")
            timeout = await connection.fetchval("SELECT setting FROM pg_settings WHERE name = 'statement_timeout'")
        return bool(shown != connection.get_server_pid()) or (not self.pooled and timeout != str(self._milliseconds))

    async def _check_server(self, connection: Connection) -> int:
        async with self._begun(connection):
            row = await connection.fetchrow("SELECT current_setting('server_version_num')::int, current_setting('server_encoding')")
        if row[0] < VERSION_MIN:
            raise BadSetting(f"{self.target.where} is PostgreSQL {row[0] // 10_000}; version {VERSION_MIN // 10_000} or newer is needed")
        if row[1] != "UTF8":
            raise BadSetting(f"{self.target.where}: the database has the encoding {row[1]}; create one with ENCODING 'UTF8'")
        return int(row[0])

    # -- Statements ---------------------------------------------------------------------------------------------------

    async def rows(self, sql: str, *params: Any) -> list[Any]:
        """The rows of one statement, in a transaction of its own. Repeated if it met another one."""

        async def once() -> list[Any]:
            async with self.pool.connection() as connection:
                if not self.pooled:
                    found: list[Any] = await connection.fetch(in_schema(sql, self.schema), *params)
                    return found
                async with self._begun(connection):
                    return await Transaction(connection, self.schema).rows(sql, *params)

        return await self.repeated(once)

    async def row(self, sql: str, *params: Any) -> Any:
        """The one row of a statement; None if there is none."""
        rows = await self.rows(sql, *params)
        return rows[0] if rows else None

    async def within(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """The work's answer, after the commit. Begun anew if it met another transaction."""

        async def once() -> T:
            async with self.pool.connection() as connection, self._begun(connection):
                return await work(Transaction(connection, self.schema))

        return await self.repeated(once)

    async def reading(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """Like within, for statements that must go along an index whatever the statistics say."""

        async def once() -> T:
            async with self.pool.connection() as connection, self._begun(connection, _ALONG_INDEXES):
                return await work(Transaction(connection, self.schema))

        return await self.repeated(once)

    async def repeated(self, once: Callable[[], Awaitable[T]]) -> T:
        """What `once` answers, tried again a few times where it met another transaction."""
        conflicts = 0
        while True:
            try:
                return await once()
            except asyncpg.PostgresError as problem:
                if getattr(problem, "sqlstate", None) not in CONFLICTS or conflicts >= CONFLICT_REPEATS:
                    raise
                conflicts += 1
            except (OSError, asyncpg.InterfaceError):
                self.pool.drop_idle()
                raise
            await asyncio.sleep(self._rng.uniform(0, _CONFLICT_WAIT_S * conflicts))

    @contextlib.asynccontextmanager
    async def _begun(self, connection: Connection, also: str = "") -> AsyncIterator[None]:
        settings = ""
        if self.pooled:
            idle = f"SET LOCAL idle_in_transaction_session_timeout = {self._idle_milliseconds}"
            settings = f"; SET LOCAL statement_timeout = {self._milliseconds}; {idle}; SET LOCAL jit = off"
        await connection.execute(f"BEGIN ISOLATION LEVEL READ COMMITTED{settings}{also}")
        try:
            yield
        except asyncpg.PostgresError:
            if not connection.is_closed():
                await connection.execute("ROLLBACK")
            raise
        await connection.execute("COMMIT")


_ALONG_INDEXES = "; SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL jit = off"


class Transaction:
    """One open transaction, for statements in our schema."""

    def __init__(self, connection: Connection, schema: str) -> None:
        self.connection = connection
        self.schema = schema

    async def rows(self, sql: str, *params: Any) -> list[Any]:
        """The rows of a statement."""
        found: list[Any] = await self.connection.fetch(in_schema(sql, self.schema), *params)
        return found

    async def row(self, sql: str, *params: Any) -> Any:
        """The first row of a statement; None if there is none."""
        return await self.connection.fetchrow(in_schema(sql, self.schema), *params)

    async def value(self, sql: str, *params: Any) -> Any:
        """The first value of the first row."""
        return await self.connection.fetchval(in_schema(sql, self.schema), *params)

    async def script(self, sql: str) -> None:
        """Statements without parameters."""
        await self.connection.execute(in_schema(sql, self.schema))
