"""The two ends of a connection that goes through the proxy, and what is on its way to each."""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
from collections import deque
from time import monotonic

WAITING_MAX = 1_000_000
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Side:
    """One end: the client's or the server's."""

    pair: Pair
    other: Side

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = connection
        self.waiting: deque[tuple[float, bytes]] = deque()  # What is to be sent here, and when.
        self.ended = False  # It will say nothing more.
        self.told_end = False  # It knows that the other one will say nothing more.
        self.minded = 0  # What the selector looks for.

    @property
    def due_at(self) -> float | None:
        """When the selector has to be left to send something that is held back."""
        if not self.waiting or self.waiting[0][0] <= monotonic():
            return None
        return self.waiting[0][0]

    def give(self, data: bytes, delay_s: float) -> None:
        """Takes data for this side."""
        self.waiting.append((monotonic() + delay_s if delay_s else 0.0, data))

    def flush(self) -> None:
        """Sends what is due, as much as the system takes; then the end, if the other side has ended."""
        while self.waiting and self.waiting[0][0] <= monotonic():
            due, data = self.waiting.popleft()
            try:
                sent = self.socket.send(data)
            except BlockingIOError:
                sent = 0
            if sent < len(data):
                self.waiting.appendleft((due, data[sent:]))
                return
        if self.other.ended and not self.waiting and not self.told_end:
            self.told_end = True
            with contextlib.suppress(OSError):  # It may have gone itself.
                self.socket.shutdown(socket.SHUT_WR)

    def interest(self) -> int:
        """What the selector shall look for: room to send what is due, and new data while there is room for it."""
        wanted = 0
        if not self.ended and sum(len(data) for _, data in self.other.waiting) < WAITING_MAX:
            wanted |= selectors.EVENT_READ
        if self.waiting and self.due_at is None:
            wanted |= selectors.EVENT_WRITE
        return wanted

    def cut(self) -> None:
        """Closes it so that the other end sees a reset, not an end."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        self.socket.close()


class Pair:
    """A connection through the proxy."""

    def __init__(self, client: Side, server: Side) -> None:
        self.client = client
        self.server = server
        self.sides = (client, server)
        self.torn = False  # Something was lost, so it can never be whole again.
        self.loses: threading.Event | None = None  # The next answer is to be lost, and this set.
        for side, other in ((client, server), (server, client)):
            side.pair, side.other = self, other

    def close(self) -> None:
        """Closes both ends."""
        for side in self.sides:
            side.socket.close()
