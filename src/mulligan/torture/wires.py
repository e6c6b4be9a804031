"""The wires of a torture run: a relay between its processes and the server of their store, which can cut all connections at once."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from types import TracebackType
from typing import Self

HOST = "127.0.0.1"
CHUNK = 65_536
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Wires:
    """`async with`: hands on what both sides say, on a port of its own. Belongs to the loop it was opened on."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._joints: set[asyncio.Task[None]] = set()
        self._clients: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}  # whose connections stand, or are being made
        self._server: asyncio.Server | None = None
        self._is_over = False
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._begin, HOST, limit=CHUNK)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._server is not None
        self._server.close()
        self._is_over = True
        self.cut()
        await asyncio.gather(*self._joints, return_exceptions=True)

    def cut(self) -> int:
        """Breaks all connections there are, so that both sides see a reset; how many. New ones are welcome."""
        broken, self._clients = self._clients, {}
        for client, joint in broken.items():
            _reset(client)
            joint.cancel()  # which resets the other end, or ends the attempt to reach it
        return len(broken)

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_over:  # it was accepted just before
            _reset(writer)
            return
        joint = self._clients[writer] = asyncio.ensure_future(self._join(reader, writer))
        self._joints.add(joint)
        joint.add_done_callback(self._joints.discard)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, from its begin to its end."""
        try:
            there, to_there = await asyncio.open_connection(*self._address, limit=CHUNK)
        except OSError:
            _reset(writer)
            self._clients.pop(writer, None)
            return
        ways = [asyncio.ensure_future(way) for way in (_handed_on(reader, to_there), _handed_on(there, writer))]
        is_whole = False
        try:
            # An end is handed on, and the other side may still have something to say. After a reset nobody has.
            _, under_way = await asyncio.wait(ways, return_when=asyncio.FIRST_EXCEPTION)
            is_whole = not under_way and not any(way.exception() for way in ways)
        finally:
            self._clients.pop(writer, None)
            for end in (writer, to_there):
                end.close() if is_whole else _reset(end)  # what is still on its way arrives, or nothing more does
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)


async def _handed_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Until the source has ended; OSError if one of the two was reset."""
    while data := await source.read(CHUNK):
        sink.write(data)
        await sink.drain()
    sink.write_eof()


def _reset(end: asyncio.StreamWriter) -> None:
    """Lets go of a connection; whoever still holds its other end sees a reset."""
    with contextlib.suppress(OSError):  # it may be closed already
        end.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    end.transport.abort()
