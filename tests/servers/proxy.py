"""A wire that can be cut: stands between a store and its server and loses what it is told to lose."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable
from time import monotonic
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from tests.servers.ports import HOST, free_port
from tests.servers.urls import with_address, with_option, without_option
from tests.servers.wire import Pair, Side

CALL_S = 10.0
CHUNK = 65_536


def anything(_request: bytes) -> bool:
    """The next request, whatever it says."""
    return True


class Proxy:
    """Forwards connections to a server; one thread does all the work, and every method is done when it returns.

    with Proxy(server.url) as proxy: store = open_store(proxy.url_of(server.url))
    """

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        assert parts.hostname and parts.port, "the proxy needs a URL with host and port"
        self._target = (parts.hostname, parts.port)
        self.port = free_port()
        self.connections = 0  # All that were ever taken.
        self.delay_s = 0.0  # Every piece of data waits this long, in both directions.
        self._listener: socket.socket | None = None
        self._pairs: set[Pair] = set()
        self._silent = False
        self._drop: tuple[Callable[[bytes], bool], threading.Event] | None = None
        self._calls: deque[tuple[Callable[[], object], threading.Event]] = deque()
        self._closing = False
        self._selector = selectors.DefaultSelector()
        self._bell, self._ear = socket.socketpair()
        self._ear.setblocking(False)
        self._selector.register(self._ear, selectors.EVENT_READ)
        self._listen()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self._thread.start()

    # -- what a test says ---------------------------------------------------------------------------------------------

    def url_of(self, url: str) -> str:
        """The URL that leads through the proxy. MongoDB's clients are told not to ask the set for its members' addresses."""
        through = with_address(url, HOST, self.port)
        if url.startswith("mongodb"):
            return with_option(without_option(through, "replicaSet"), "directConnection", "true")
        return through

    @property
    def open_connections(self) -> int:
        """How many connections there are now."""
        return len(self._pairs)

    def reset(self) -> None:
        """Breaks all connections, so that both ends see a reset. New ones are welcome."""

        def break_all() -> None:
            for pair in list(self._pairs):
                self._break(pair)

        self._do(break_all)

    def go_silent(self) -> None:
        """Takes everything and forwards nothing, not even an end: to both sides it looks as if the other one had nothing to say."""
        self._do(lambda: setattr(self, "_silent", True))

    def speak_again(self) -> None:
        """Forwards again. Connections that have lost something by then are reset."""

        def speak() -> None:
            self._silent = False
            for pair in [pair for pair in self._pairs if pair.torn]:
                self._break(pair)

        self._do(speak)

    def drop_reply(self, request: Callable[[bytes], bool] = anything) -> threading.Event:
        """Forwards the next request that fits, waits for the server to answer it, and breaks that connection without the answer.

        The event tells when that has happened. Only the first fitting request loses its answer. A driver that prepares its
        statements sends their text once, and a client may send heartbeats: then say what the request looks like.
        """
        dropped = threading.Event()
        self._do(lambda: setattr(self, "_drop", (request, dropped)))
        return dropped

    def refuse(self) -> None:
        """Refuses new connections, as a server that is down does. Those there are stay."""
        self._do(self._deafen)

    def accept_again(self) -> None:
        """Takes new connections on the same port."""
        self._do(self._listen)

    def close(self) -> None:
        """Ends everything."""
        if not self._closing:
            self._do(lambda: setattr(self, "_closing", True))
            self._thread.join(CALL_S)
            assert not self._thread.is_alive()
            self._bell.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _do(self, call: Callable[[], object]) -> None:
        """Has the thread call this, and returns when it has."""
        done = threading.Event()
        self._calls.append((call, done))
        with contextlib.suppress(BrokenPipeError):  # It was awake, has seen the call, and the call was to end.
            self._bell.send(b"!")
        assert done.wait(CALL_S), "the proxy's thread does not answer"

    def _run(self) -> None:
        while not self._closing:
            for key, ready in self._selector.select(self._wait_s()):
                if key.fileobj is self._ear:
                    self._ear.recv(CHUNK)
                elif key.fileobj is self._listener:
                    self._accept()
                elif isinstance(key.data, Side) and key.data.pair in self._pairs:
                    self._serve(key.data, ready)
            while self._calls:
                call, done = self._calls.popleft()
                call()
                done.set()
            for pair in list(self._pairs):
                self._flush(pair)
        self._deafen()
        for pair in list(self._pairs):
            self._forget(pair)
            pair.close()
        self._selector.close()
        self._ear.close()

    def _wait_s(self) -> float | None:
        due = [side.due_at for pair in self._pairs for side in pair.sides if side.due_at is not None]
        return max(0.0, min(due) - monotonic()) if due else None

    def _listen(self) -> None:
        if self._listener is None:
            self._listener = socket.create_server((HOST, self.port), backlog=256)
            self._listener.setblocking(False)
            self._selector.register(self._listener, selectors.EVENT_READ)

    def _deafen(self) -> None:
        if self._listener is not None:
            self._selector.unregister(self._listener)
            self._listener.close()
            self._listener = None

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            client, _ = self._listener.accept()
        except OSError:
            return  # It has gone away again.
        self.connections += 1
        try:
            server = socket.create_connection(self._target, timeout=CALL_S)
        except OSError:
            Side(client).cut()
            return
        pair = Pair(Side(client), Side(server))
        self._pairs.add(pair)
        self._mind(pair)

    def _serve(self, side: Side, ready: int) -> None:
        if ready & selectors.EVENT_READ:
            self._read(side)
        if side.pair in self._pairs:
            self._flush(side.pair)

    def _read(self, side: Side) -> None:
        """Takes what one side says and decides what becomes of it."""
        pair = side.pair
        try:
            data = side.socket.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            # The other side does not hear of it in a silence.
            side.ended = pair.torn = True
            if not self._silent:
                self._break(pair)
            return
        if side is pair.client and data and self._drop is not None and not self._silent and self._drop[0](data):
            # What the server has said before belongs to earlier requests.
            self._read(pair.server)
            if pair not in self._pairs:
                return
            pair.loses, self._drop = self._drop[1], None
            pair.server.give(data, self.delay_s)
        elif side is pair.server and data and pair.loses is not None:
            dropped, pair.loses = pair.loses, None
            self._break(pair)
            dropped.set()
        elif data:
            side.other.give(data, self.delay_s)
        else:
            side.ended = True

    def _flush(self, pair: Pair) -> None:
        """Hands on what is due, or in a silence throws it away."""
        if self._silent:
            if any(side.waiting for side in pair.sides):
                pair.torn = True
            for side in pair.sides:
                side.waiting.clear()
            self._mind(pair)
            return
        try:
            for side in pair.sides:
                side.flush()
        except OSError:
            self._break(pair)
            return
        if all(side.ended for side in pair.sides) and not any(side.waiting for side in pair.sides):
            self._forget(pair)
            pair.close()
        else:
            self._mind(pair)

    def _break(self, pair: Pair) -> None:
        if pair in self._pairs:
            self._forget(pair)
            for side in pair.sides:
                side.cut()

    def _forget(self, pair: Pair) -> None:
        self._pairs.discard(pair)
        for side in pair.sides:
            if side.minded:
                self._selector.unregister(side.socket)
                side.minded = 0

    def _mind(self, pair: Pair) -> None:
        """Tells the selector what each side waits for."""
        for side in pair.sides:
            wanted = side.interest()
            if wanted == side.minded:
                continue
            if not side.minded:
                self._selector.register(side.socket, wanted, side)
            elif not wanted:
                self._selector.unregister(side.socket)
            else:
                self._selector.modify(side.socket, wanted, side)
            side.minded = wanted
