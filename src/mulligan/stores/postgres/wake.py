"""Wake-up hints by LISTEN and NOTIFY: without content, on a connection of their own, and never inside a transaction that writes jobs
(NOTIFY takes a lock on the whole database when it commits)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import asyncpg

from mulligan.stores.postgres.database import Database
from mulligan.stores.postgres.pool import Connection

PING_S, PING_TIMEOUT_S = 5.0, 5.0
SPACING_S = 0.01  # between two hints of one process; those that come meanwhile go as one


class Ear:
    """The connection that listens. It is made when the store opens, so that nobody who listens afterwards misses a hint, and made anew
    when it has broken. Touched by the home loop only."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: Connection | None = None
        self._hints = asyncio.Event()

    async def begin(self) -> None:
        """Listens from now on. Without success there are no hints for now, which is no reason not to open."""
        if not self._database.pooled:
            with contextlib.suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                self._connection = await self._listening()

    async def hear(self, heard: Callable[[], None]) -> None:
        """Passes on hints until the connection breaks. Behind a pooler there are none: polling alone is enough."""
        if self._database.pooled:
            await asyncio.Event().wait()
        if self._connection is None:
            self._connection = await self._listening()
            heard()  # for what was missed meanwhile
        try:
            while True:
                try:
                    # Not wait_for, which up to Python 3.11 can lose a cancellation that comes together with a hint.
                    async with asyncio.timeout(PING_S):
                        await self._hints.wait()
                except TimeoutError:
                    # A server that is gone without a word is noticed by its silence.
                    await self._connection.fetchval("SELECT 1", timeout=PING_TIMEOUT_S)
                if self._hints.is_set():
                    self._hints.clear()
                    heard()
                if self._connection.is_closed():
                    raise ConnectionResetError("the listening connection broke")
        finally:
            self.end()

    def end(self) -> None:
        """Throws the connection away."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    def abandon(self) -> list[object]:
        """In a forked child: hands out the connection without touching it."""
        connection, self._connection = self._connection, None
        return [] if connection is None else [connection]

    def _notified(self, _connection: Connection, sender: int, _channel: str, _payload: str) -> None:
        # The sleepers of this process were woken when the hint was sent.
        if not self._database.pool.has(sender):
            self._hints.set()

    async def _listening(self) -> Connection:
        connection = await self._database.connect()
        try:
            connection.add_termination_listener(lambda _: self._hints.set())
            await connection.add_listener(_channel(self._database), self._notified)
        except BaseException:
            connection.terminate()
            raise
        return connection


# NOTIFY alone makes a transaction that has to be committed. A hint may be lost in a power cut, so nobody waits for the disk.
_SPREAD = "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, '')"


async def spread(database: Database) -> None:
    """Sends a hint to every process, and waits a moment, so that hints come spaced."""
    await database.rows(_SPREAD, _channel(database))
    await asyncio.sleep(SPACING_S)


def _channel(database: Database) -> str:
    return f"mulligan:{database.schema}"
