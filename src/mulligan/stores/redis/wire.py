"""One connection for calls that come one after another.

The driver's client takes a connection out of its pool for each command, looks whether it still lives, and measures what it does; and its
connection reads through a stream, whose layers cost more than all else of a call. So here the driver connects, with all that belongs to
that, and then its transport is used without them. A connection that broke is made anew by the next call.
"""

from __future__ import annotations

import asyncio
from typing import Any

import hiredis
import redis.asyncio as driver
from redis.asyncio.connection import DefaultParser
from redis.exceptions import ConnectionError as GoneError

_MORE = object()  # the answer is not all there yet
_PUSHED = getattr(hiredis, "PushNotification", ())  # older versions know of none


class _Line(asyncio.Protocol):
    """A transport in the hands of one caller at a time. The protocol that had it before is told when it ends: the driver waits for that."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self.is_over = False
        self._transport = transport
        self._before = transport.get_protocol()
        self._reader = hiredis.Reader(replyError=DefaultParser.parse_error, notEnoughData=_MORE)
        self._waiter: asyncio.Future[Any] | None = None
        transport.set_protocol(self)

    def ask(self, packed: bytes) -> asyncio.Future[Any]:
        """Sends a command; its answer, which may be an error of the server's, is yet to come."""
        waiter = self._waiter = asyncio.get_running_loop().create_future()
        self._transport.write(packed)
        return waiter

    def data_received(self, data: bytes) -> None:
        """Hands on the answer once all of it is here."""
        try:
            self._reader.feed(data)
            answer = self._reader.gets()
            while isinstance(answer, _PUSHED):  # not asked for
                answer = self._reader.gets()
        except hiredis.HiredisError as problem:
            self._end(GoneError(f"what the server said is no answer: {problem}"))
            self._transport.abort()
            return
        if answer is not _MORE and self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(answer)

    def connection_lost(self, problem: Exception | None) -> None:
        """Whoever waits is told."""
        self._end(GoneError(f"the server closed the connection: {problem}" if problem else "the server closed the connection"))
        self._before.connection_lost(problem)

    def _end(self, problem: GoneError) -> None:
        self.is_over = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(problem)


class Wire:
    """Stands in for a client (`execute_command`, `aclose`) whose calls never overlap."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._line: _Line | None = None

    @classmethod
    def over(cls, pool: driver.ConnectionPool) -> Wire | None:
        """A wire made as the pool makes its connections. None if this version of the driver keeps its transport elsewhere: it tells nobody
        where, and what goes the long way is as right."""
        connection = pool.make_connection()  # type: ignore[no-untyped-call]
        return cls(connection) if hasattr(connection, "_writer") else None

    async def execute_command(self, *words: bytes | str | int) -> Any:
        """Sends a command, and gives or raises what is answered. Whatever interrupts it, the connection is closed."""
        packed = hiredis.pack_command(words)  # type: ignore[arg-type]
        line = self._line
        if line is None or line.is_over:
            line = await self._connected()
        try:
            answer = await line.ask(packed)
        except BaseException:
            self._line = None
            await self._connection.disconnect(nowait=True)
            raise
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _connected(self) -> _Line:
        self._line = None
        await self._connection.disconnect(nowait=True)
        await self._connection.connect()
        line = self._line = _Line(self._connection._writer.transport)  # noqa: SLF001
        return line

    async def aclose(self) -> None:
        """Ends the connection."""
        self._line = None
        await self._connection.disconnect()
