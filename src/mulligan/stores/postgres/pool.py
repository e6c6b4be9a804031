"""A pool of connections, kept small and plain: a connection is idle, in use, or thrown away.

The driver's own pool sends a reset with every return, waits for a server that is silent when a call was cut off, and keeps what a
cancelled call leaves. Here whatever did not end cleanly is thrown away at once, and the next caller gets another connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asyncpg

Connection = Any  # the driver has no types of its own

_BROKEN = ("08", "57", "25")  # after these the connection is gone or in an unknown state


class Pool:
    """At most `most` connections, made when they are needed. Touched by the home loop only."""

    def __init__(self, connect: Callable[[], Awaitable[Connection]], most: int) -> None:
        self._connect = connect
        self._idle: list[Connection] = []
        self._free = asyncio.Semaphore(most)
        self._in_use: set[Connection] = set()
        self._closed = False
        self.made = 0  # connections, since the beginning

    @property
    def size(self) -> int:
        """How many connections there are now."""
        return len(self._idle) + len(self._in_use)

    def has(self, server_pid: int) -> bool:
        """Whether a connection here is served by this process of the server."""
        return any(connection.get_server_pid() == server_pid for connection in (*self._idle, *self._in_use))

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection for one piece of work."""
        async with self._free:
            connection = await self._get()
            self._in_use.add(connection)
            try:
                yield connection
            except asyncpg.PostgresError as problem:
                self._in_use.discard(connection)
                code = getattr(problem, "sqlstate", None) or ""
                self._put(connection, is_clean=not code.startswith(_BROKEN))
                raise
            except BaseException:
                self._in_use.discard(connection)
                self._put(connection, is_clean=False)
                self.drop_idle()  # a call that was cut off for lack of an answer: the others lead through the same silence
                raise
            else:
                self._in_use.discard(connection)
                self._put(connection, is_clean=True)

    async def _get(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        if self._closed:
            raise asyncpg.InterfaceError("the pool is closed")
        self.made += 1
        connection = await self._connect()
        if self._closed:
            connection.terminate()
            raise asyncpg.InterfaceError("the pool is closed")
        return connection

    def _put(self, connection: Connection, *, is_clean: bool) -> None:
        if is_clean and not self._closed and not connection.is_closed() and not connection.is_in_transaction():
            self._idle.append(connection)
        else:
            connection.terminate()

    def drop_idle(self) -> None:
        """Throws away what is idle: after one connection broke, the others have probably broken with it."""
        while self._idle:
            self._idle.pop().terminate()

    async def close(self) -> None:
        """Takes leave of every connection, for good."""
        self._closed = True
        await self.shrink()
        for connection in list(self._in_use):
            connection.terminate()

    async def shrink(self) -> None:
        """Takes leave of the idle connections."""
        idle, self._idle = self._idle, []
        for connection in idle:
            try:
                await connection.close(timeout=1)
            except Exception:  # noqa: BLE001 - whatever a driver raises, it is the end
                connection.terminate()

    def abandon(self) -> list[object]:
        """In a forked child: hands out everything without touching it."""
        left: list[object] = [*self._idle, *self._in_use]
        self._idle, self._in_use = [], set()
        return left


def keep_alive(connection: Connection) -> None:
    """Lets the operating system notice a dead peer on an idle connection."""
    transport = getattr(connection, "_transport", None)
    plug = None if transport is None else transport.get_extra_info("socket")
    if plug is None or plug.family not in (socket.AF_INET, socket.AF_INET6):
        return
    with contextlib.suppress(OSError):
        plug.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 3), ("TCP_KEEPCNT", 3)):
            if hasattr(socket, name):
                plug.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
