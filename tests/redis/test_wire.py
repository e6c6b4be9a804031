"""The connection of a loop that goes on inserting: calls one after another, and nothing is left on it by one that was broken off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import redis.asyncio as driver
from redis.exceptions import ConnectionError as GoneError
from redis.exceptions import NoScriptError

from mulligan.stores import open_store
from mulligan.stores.network.inserts import OFTEN
from mulligan.stores.redis.wire import Wire
from tests.builders import new_job
from tests.servers import Proxy, Redis


@pytest.fixture
async def proxied(server: Redis) -> AsyncIterator[tuple[Wire, Proxy]]:
    """A wire, and the proxy it goes through."""
    with Proxy(server.url) as proxy:
        wire = Wire.over(driver.Redis.from_url(proxy.url_of(server.url)).connection_pool)
        assert wire is not None, "this version of the driver keeps its transport elsewhere: single inserts are slower with it"
        yield wire, proxy
        await wire.aclose()


async def test_texts_numbers_and_refusals(proxied: tuple[Wire, Proxy]) -> None:
    """What is sent arrives, an answer that is an error is raised, and the connection goes on."""
    wire, _ = proxied
    assert await wire.execute_command("EVAL", b"return {ARGV[1], ARGV[2], ARGV[3]}", 0, "\u00e9", b"\x00\xff", 7) == [
        "\u00e9".encode(),
        b"\x00\xff",
        b"7",
    ]
    with pytest.raises(NoScriptError):
        await wire.execute_command("EVALSHA", "0" * 40, 0)
    assert await wire.execute_command("PING") in (b"PONG", "PONG")


async def test_a_connection_that_broke_is_made_anew(proxied: tuple[Wire, Proxy]) -> None:
    """The call that meets the break fails; the next one has a connection again."""
    wire, proxy = proxied
    await wire.execute_command("PING")
    proxy.reset()
    with pytest.raises(GoneError):
        await wire.execute_command("PING")
    assert await wire.execute_command("ECHO", "here") == b"here"


async def test_an_answer_in_many_pieces(proxied: tuple[Wire, Proxy]) -> None:
    """An answer that is longer than what is read at once is whole."""
    wire, _ = proxied
    assert await wire.execute_command("EVAL", "return string.rep('x', 3000000)", 0) == b"x" * 3_000_000


async def test_what_is_no_answer_ends_the_connection(proxied: tuple[Wire, Proxy]) -> None:
    """Whoever waits is told that the connection is gone, and the next call has another one."""
    wire, _ = proxied
    await wire.execute_command("PING")
    waiting = asyncio.create_task(wire.execute_command("BLPOP", "nothing", 0))
    await asyncio.sleep(0)
    line = wire._line
    assert line is not None
    line.data_received(b"nonsense\r\n")
    with pytest.raises(GoneError, match="no answer"):
        await waiting
    assert await wire.execute_command("ECHO", "here") == b"here"


async def test_an_answer_nobody_waits_for_is_not_the_next_ones(server: Redis, proxied: tuple[Wire, Proxy]) -> None:
    """A call is broken off while the server works on it; its answer is never taken for that of the next call."""
    wire, _ = proxied
    await wire.execute_command("PING")
    slow = asyncio.create_task(wire.execute_command("BLPOP", "nothing", 1))
    async with driver.Redis.from_url(server.url) as other:
        while (await other.info("clients"))["blocked_clients"] == 0:
            await asyncio.sleep(0.001)
    slow.cancel()
    with pytest.raises(asyncio.CancelledError):
        await slow
    assert await wire.execute_command("ECHO", "mine") == b"mine"


async def test_a_driver_without_that_transport_is_used_as_it_is(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inserts go on through the store's own connections, however many there are."""
    monkeypatch.setattr(Wire, "over", classmethod(lambda cls, pool: None))
    store = open_store(url)
    await store.open()
    jobs = [new_job() for _ in range(3 * OFTEN)]
    for job in jobs:
        await store.insert([job])
    assert None not in await store.get([job.id for job in jobs])
    await store.close()


def test_such_a_driver_is_known_by_its_connections() -> None:
    """A connection that has no place for a transport makes no wire."""

    class Pool:
        def make_connection(self) -> object:
            return object()

    assert Wire.over(Pool()) is None  # type: ignore[arg-type]
