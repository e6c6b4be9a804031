"""The link between a supervisor and one of its children: a socket pair, and the messages that cross it.

A message is its length and a msgspec value. What a killed child has sent stays in the kernel's buffer, so the parent still reads it. Nobody
ever blocks here: what the other side does not take at once waits in a backlog, and those who must not run ahead wait for that to empty.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import suppress

import msgspec

from mulligan.core.contract import Renewal, WorkerInfo
from mulligan.core.job import Job

log = logging.getLogger("mulligan.link")
LENGTH_BYTES = 4
MESSAGE_MAX = 64 * 1024 * 1024
READ_BYTES = 256 * 1024
BACKLOG_MAX = 1024 * 1024  # beyond it, what can be told again later is not sent


class Hello(msgspec.Struct, frozen=True, tag=True):
    """Child → parent: it has started and claims under this name from now on."""

    name: str


class Claiming(msgspec.Struct, frozen=True, tag=True):
    """Child → parent: this claim is going to be made."""

    claim_id: str


class Holding(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """One claimed job, as far as a supervisor has to know it."""

    cell: int
    job_id: str
    fence: int
    timeout_us: int | None = None


class Held(msgspec.Struct, frozen=True, tag=True):
    """Child → parent: what a claim has brought, told before any of its handlers starts. Those of `alone` it does not keep: the parent
    lets them run in a process of their own. If nobody takes such jobs yet it gives them back itself, and says that somebody should."""

    claim_id: str
    jobs: list[Holding]
    alone: list[Holding] = []
    wants_alone: bool = False


class Dropped(msgspec.Struct, frozen=True, tag=True):
    """Child → parent: these cells are free; their jobs are settled, or lost."""

    cells: list[int]


class Report(msgspec.Struct, frozen=True, tag=True):
    """Child → parent: what the child reports of itself, for the parent to write with its renewals."""

    info: WorkerInfo


class Leaving(msgspec.Struct, frozen=True, tag=True):
    """Child → parent: it ends by its own will; what it still holds was stopped by that, not by a fault."""


class Answers(msgspec.Struct, frozen=True, tag=True):
    """Parent → child: leases that were lost, and cancels that wait."""

    renewals: list[Renewal]


class Stop(msgspec.Struct, frozen=True, tag=True):
    """Parent → child: claim no more, finish within the grace time, or at once, and end."""

    reason: str
    hurry: bool = False


class Feed(msgspec.Struct, frozen=True, tag=True):
    """Parent → child that runs jobs alone: run this one, under this cell."""

    cell: int
    job: Job


Message = Hello | Claiming | Held | Dropped | Report | Leaving | Answers | Stop | Feed
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Message)


class Link:
    """One end of the pair. Without a loop it can still be read to its end, by `drain`."""

    def __init__(self, end: socket.socket, on_message: Callable[[Message], None], on_end: Callable[[], None]) -> None:
        end.setblocking(False)
        self._socket = end
        self._on_message = on_message
        self._on_end = on_end
        self._read = bytearray()
        self._backlog = bytearray()
        self._empty: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = False

    def listen(self) -> None:
        """Calls back with each message from now on, on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket, self._on_readable)

    # --- sending -------------------------------------------------------------------------------------------------------

    @property
    def is_behind(self) -> bool:
        """Whether the other side has so much to read that what can be told again later should not be sent."""
        return len(self._backlog) > BACKLOG_MAX

    def send(self, message: Message) -> None:
        """Sends, or puts into the backlog. To a side that is gone nothing can be told."""
        body = _encoder.encode(message)
        self._backlog += len(body).to_bytes(LENGTH_BYTES, "little") + body
        if self._empty is None:
            self._flush()

    async def sent(self) -> None:
        """Returns when everything has been sent, or there is nobody to send it to."""
        while self._backlog and self._empty is not None:
            await asyncio.shield(self._empty)

    def _flush(self) -> None:
        try:
            while self._backlog:
                count = self._socket.send(self._backlog)
                del self._backlog[:count]
        except (BlockingIOError, InterruptedError):
            self._wait_for_room()
            return
        except OSError:  # the other side is gone, which the reader tells
            self._backlog.clear()
        self._emptied()

    def _wait_for_room(self) -> None:
        if self._empty is None and self._loop is not None:
            self._empty = self._loop.create_future()
            self._loop.add_writer(self._socket, self._flush)

    def _emptied(self) -> None:
        if self._empty is not None and self._loop is not None:
            self._loop.remove_writer(self._socket)
            if not self._empty.done():
                self._empty.set_result(None)
            self._empty = None

    # --- receiving -----------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Reads what is there, up to the last whole message."""
        while self._take():
            pass

    def _on_readable(self) -> None:
        self._take()

    def _take(self) -> bool:
        """Reads once and passes on what is complete; False when there is nothing more for now."""
        if self._ended:
            return False
        try:
            data = self._socket.recv(READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            data = b""
        if not data:
            self._end()
            return False
        self._read += data
        self._pass_on()
        return True

    def _pass_on(self) -> None:
        start = 0
        while len(self._read) - start >= LENGTH_BYTES:
            length = int.from_bytes(self._read[start : start + LENGTH_BYTES], "little")
            if length > MESSAGE_MAX:
                log.error("a message of %d bytes on the link; its sender is broken", length)
                self._end()
                return
            end = start + LENGTH_BYTES + length
            if end > len(self._read):
                break
            body = memoryview(self._read)[start + LENGTH_BYTES : end].tobytes()
            start = end
            try:
                self._on_message(_decoder.decode(body))
            except Exception:  # a package that was upgraded meanwhile, say; the other messages still count
                log.exception("a message on the link cannot be understood")
        del self._read[:start]

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            if self._loop is not None:
                self._loop.remove_reader(self._socket)
            self._on_end()

    def close(self) -> None:
        """Lets go of the socket, which tells the other side."""
        self._ended = True
        self._backlog.clear()
        if self._socket.fileno() < 0:
            return
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._socket)
            self._emptied()
        with suppress(OSError):
            self._socket.close()
