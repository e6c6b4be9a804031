"""The relay between a torture's processes and their store, and the addresses it needs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mulligan.core.errors import BadSetting
from mulligan.stores import address_of, at_address
from mulligan.torture.wires import HOST, Wires

MANY = 3_000_000  # bytes: more than any buffer on the way holds


@asynccontextmanager
async def echo() -> AsyncIterator[tuple[str, int]]:
    """A server that says everything again, to the end."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        writer.close()

    server = await asyncio.start_server(serve, HOST)
    async with server:
        yield server.sockets[0].getsockname()[:2]


async def test_everything_is_handed_on_and_so_is_the_end() -> None:
    """Both ways, whole, however much it is."""
    async with echo() as address, Wires(address) as wires:
        reader, writer = await asyncio.open_connection(HOST, wires.port)
        sent = bytes(range(256)) * (MANY // 256)
        answer = asyncio.ensure_future(reader.read(-1))
        writer.write(sent)
        await writer.drain()
        writer.write_eof()
        assert await answer == sent
        writer.close()


async def test_a_cut_is_a_reset_and_the_next_connection_is_welcome() -> None:
    """Whoever waits for an answer hears at once that there will be none."""
    async with echo() as address, Wires(address) as wires:
        for _ in range(2):
            reader, writer = await asyncio.open_connection(HOST, wires.port)
            writer.write(b"hello")
            assert await reader.readexactly(5) == b"hello"
            assert wires.cut() == 1
            with pytest.raises(ConnectionResetError):
                await reader.readexactly(1)
            writer.close()
        assert wires.cut() == 0


async def test_a_server_that_is_down_ends_the_connection() -> None:
    """It is reset: there is no way to refuse one that stands already."""
    async with echo() as address:
        pass
    async with Wires(address) as wires:
        reader, writer = await asyncio.open_connection(HOST, wires.port)
        with pytest.raises(ConnectionResetError):
            await reader.read(1)
        writer.close()
        assert wires.cut() == 0


async def test_who_is_on_the_way_is_cut_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who has come as far as the relay sees the reset, whether the server has answered yet or not; and nobody waits for him."""
    asked = asyncio.Event()
    connect = asyncio.open_connection

    async def never(*_: object, **__: object) -> None:
        asked.set()
        await asyncio.Event().wait()

    monkeypatch.setattr("mulligan.torture.wires.asyncio.open_connection", never)
    async with Wires((HOST, 1)) as wires:
        for is_cut in (True, False):
            asked.clear()
            reader, writer = await connect(HOST, wires.port)
            await asked.wait()
            if is_cut:
                assert wires.cut() == 1
                with pytest.raises(ConnectionResetError):
                    await reader.readexactly(1)
                writer.close()
    with pytest.raises(ConnectionResetError):
        await reader.readexactly(1)
    writer.close()


@pytest.mark.parametrize(
    "url, address, moved",
    [
        ("postgresql://me:secret@db/jobs?schema=x", ("db", 5432), "postgresql://me:secret@h:1/jobs?schema=x"),
        ("redis://:a%40b@db:7000/2?app=x", ("db", 7000), "redis://:a%40b@h:1/2?app=x"),
        (
            "mongodb://db/jobs?replicaset=rs&w=majority&tls=false",
            ("db", 27017),
            "mongodb://h:1/jobs?w=majority&tls=false&directConnection=true",
        ),
        ("mongodb://db:1000/jobs", ("db", 1000), "mongodb://h:1/jobs?directConnection=true"),
    ],
)
def test_a_store_by_another_address(url: str, address: tuple[str, int], moved: str) -> None:
    """Login, place and options stay; a driver that would ask for addresses does not."""
    assert address_of(url) == address
    assert at_address(url, "h", 1) == moved


@pytest.mark.parametrize(
    "url",
    [
        "memory://",
        "sqlite:///jobs.db",
        "rediss://db",
        "mongodb://a,b/jobs",
        "mongodb://a/jobs?w=majority&tls=true",
        "mongodb://a/jobs?tlsCAFile=/ca.pem",
        "mongodb://a/jobs?loadBalanced=true",
        "postgresql:///jobs",
        "postgresql://%2Frun%2Fdb/jobs",
        "postgresql://db/jobs?sslmode=require",
        "postgresql://db/jobs?host=other",
    ],
)
def test_a_store_without_one_address(url: str) -> None:
    """Is refused in words."""
    with pytest.raises(BadSetting, match="one server"):
        address_of(url)
