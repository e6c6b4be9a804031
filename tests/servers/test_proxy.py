"""The proxy on a server that echoes: what it forwards is whole, and what it loses is exactly what it was told to lose."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Iterator
from time import monotonic

import pytest

from tests.servers.ports import HOST
from tests.servers.processes import wait_until
from tests.servers.proxy import Proxy
from tests.servers.wire import Side

WAIT_S = 10.0


class Echo:
    """Says back what it hears, and remembers it."""

    def __init__(self) -> None:
        self.heard = bytearray()
        self._listener = socket.create_server((HOST, 0))
        self.url = f"tcp://{HOST}:{self._listener.getsockname()[1]}"
        self._sockets: list[socket.socket] = []
        self.threads = [threading.Thread(target=self._accept)]
        self.threads[0].start()

    def hears(self, what: bytes) -> bool:
        """Waits until it has heard this."""
        return wait_until(lambda: what in self.heard, WAIT_S)

    def close(self) -> None:
        """Ends it."""
        for one in [self._listener, *self._sockets]:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self.threads:
            thread.join(WAIT_S)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(connection)
            self.threads.append(threading.Thread(target=self._echo, args=[connection]))
            self.threads[-1].start()

    def _echo(self, connection: socket.socket) -> None:
        try:
            while data := connection.recv(65_536):
                self.heard += data
                connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass


@pytest.fixture
def echo() -> Iterator[Echo]:
    """A server."""
    echo = Echo()
    yield echo
    echo.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    """The wire to it."""
    with Proxy(echo.url) as proxy:
        yield proxy


@pytest.fixture
def client(proxy: Proxy) -> Iterator[socket.socket]:
    """A connection that has been used."""
    with connect(proxy) as client:
        assert ask(client, b"first") == b"first"
        yield client


def connect(proxy: Proxy) -> socket.socket:
    return socket.create_connection((HOST, proxy.port), timeout=WAIT_S)


def ask(client: socket.socket, data: bytes) -> bytes:
    client.sendall(data)
    answer = b""
    while len(answer) < len(data) and (piece := client.recv(65_536)):
        answer += piece
    return answer


def test_forwards_everything_and_the_end(proxy: Proxy, client: socket.socket) -> None:
    """Ten megabytes come back unchanged while both sides talk at once, an end reaches the other side, and connections are counted."""
    sent = bytes(range(256)) * 40_000

    def send() -> None:
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)

    sender = threading.Thread(target=send)
    sender.start()
    received = bytearray()
    while piece := client.recv(65_536):
        received += piece
    sender.join()
    assert received == sent
    assert wait_until(lambda: proxy.open_connections == 0, WAIT_S)
    with connect(proxy) as other:
        assert ask(other, b"x") == b"x"
        assert proxy.open_connections == 1
    assert proxy.connections == 2


def test_reset_breaks_what_there_is(proxy: Proxy, client: socket.socket) -> None:
    """After a reset the client sees a reset, not an end, and a new connection works."""
    proxy.reset()
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    assert proxy.open_connections == 0
    with connect(proxy) as other:
        assert ask(other, b"x") == b"x"


def test_silence_forwards_nothing_either_way(proxy: Proxy, echo: Echo, client: socket.socket) -> None:
    """A silent wire takes data and new connections and passes on neither data nor the end; what was lost is never made up for."""
    proxy.go_silent()
    client.sendall(b"lost")
    assert wait_until(lambda: all(pair.torn for pair in proxy._pairs), WAIT_S)
    with connect(proxy) as late:
        late.sendall(b"also lost")
        assert wait_until(lambda: proxy.open_connections == 2 and all(pair.torn for pair in proxy._pairs), WAIT_S)
    assert select.select([client], [], [], 0)[0] == []
    assert bytes(echo.heard) == b"first"
    proxy.speak_again()
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    with connect(proxy) as other:
        assert ask(other, b"second") == b"second"
    assert bytes(echo.heard) == b"firstsecond"


def test_an_answer_under_way_is_lost_in_silence(proxy: Proxy, echo: Echo, client: socket.socket) -> None:
    """A request that is forwarded before the silence has its answer swallowed."""
    proxy.delay_s = 3_600.0
    client.sendall(b"asked")
    assert wait_until(lambda: any(side.waiting for pair in proxy._pairs for side in pair.sides), WAIT_S)
    proxy.go_silent()
    proxy.delay_s = 0.0
    assert wait_until(lambda: all(pair.torn for pair in proxy._pairs), WAIT_S)
    proxy.speak_again()
    with pytest.raises(ConnectionResetError):
        client.recv(1)


def test_a_client_that_goes_in_silence_is_missed_later(proxy: Proxy, echo: Echo) -> None:
    """In a silence the server does not learn that its client has closed or has broken off; afterwards it does."""
    closed, broken = connect(proxy), connect(proxy)
    assert ask(closed, b"a") + ask(broken, b"b") == b"ab"
    proxy.go_silent()
    closed.close()
    Side(broken).cut()
    assert wait_until(lambda: all(pair.client.ended for pair in proxy._pairs), WAIT_S)
    assert proxy.open_connections == 2
    assert all(thread.is_alive() for thread in echo.threads)
    proxy.speak_again()
    assert wait_until(lambda: proxy.open_connections == 0, WAIT_S)
    assert wait_until(lambda: not any(thread.is_alive() for thread in echo.threads[1:]), WAIT_S)


def test_a_whole_connection_survives_a_silence(proxy: Proxy, client: socket.socket) -> None:
    """Nothing was said, so nothing was lost: the connection goes on."""
    proxy.go_silent()
    proxy.speak_again()
    assert ask(client, b"x") == b"x"


def test_drop_reply_loses_one_answer(proxy: Proxy, echo: Echo, client: socket.socket) -> None:
    """The server gets the request once and answers; the client gets a reset without a byte; the next request is answered."""
    with connect(proxy) as bystander:
        assert ask(bystander, b"hello") == b"hello"
        dropped = proxy.drop_reply(lambda data: b"commit" in data)
        assert ask(client, b"begin") == b"begin"
        client.sendall(b"commit")
        with pytest.raises(ConnectionResetError):
            client.recv(1)
        assert dropped.wait(WAIT_S)
        assert ask(bystander, b"commit again") == b"commit again"
    assert bytes(echo.heard) == b"firsthellobegincommitcommit again"


def test_drop_reply_takes_any_request(proxy: Proxy, echo: Echo, client: socket.socket) -> None:
    """Without a description the very next request loses its answer."""
    dropped = proxy.drop_reply()
    assert not dropped.is_set()
    client.sendall(b"whatever")
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    assert dropped.wait(WAIT_S)
    assert echo.hears(b"whatever")


def test_delay_holds_back_both_ways(proxy: Proxy, client: socket.socket) -> None:
    """A question and its answer take at least two delays."""
    proxy.delay_s = 0.05
    start = monotonic()
    assert ask(client, b"x") == b"x"
    assert monotonic() - start >= 2 * proxy.delay_s


def test_refuses_new_connections(proxy: Proxy, client: socket.socket) -> None:
    """A refusing proxy looks like a server that is down, but what is connected stays; the port is the same afterwards."""
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)
    assert ask(client, b"x") == b"x"
    proxy.accept_again()
    with connect(proxy) as other:
        assert ask(other, b"y") == b"y"


def test_a_server_that_is_down_resets_its_clients(proxy: Proxy, echo: Echo) -> None:
    """Who connects while there is no server behind the proxy is cut off, not left waiting."""
    echo.close()
    with pytest.raises(ConnectionResetError), connect(proxy) as client:
        client.recv(1)


def test_close_leaves_nothing(echo: Echo) -> None:
    """After the end there is no thread, no connection and nobody at the port; a second end is none."""
    proxy = Proxy(echo.url)
    with connect(proxy) as client:
        assert ask(client, b"x") == b"x"
        proxy.close()
        assert client.recv(1) == b""
    proxy.close()
    assert not proxy._thread.is_alive()
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)


@pytest.mark.parametrize(
    "url, through",
    [
        ("redis://:secret@127.0.0.1:1/0?app=a", "redis://:secret@127.0.0.1:{port}/0?app=a"),
        ("postgresql://me@db.example:5432/d?schema=s", "postgresql://me@127.0.0.1:{port}/d?schema=s"),
        ("mongodb://127.0.0.1:1/d?replicaSet=r", "mongodb://127.0.0.1:{port}/d?directConnection=true"),
    ],
)
def test_url_leads_through_the_proxy(proxy: Proxy, url: str, through: str) -> None:
    """Only the address changes; a client of MongoDB must not learn the address of the server itself."""
    assert proxy.url_of(url) == through.format(port=proxy.port)
