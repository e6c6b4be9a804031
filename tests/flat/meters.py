"""Meters: what a store looks at for a piece of work, in a unit of its own. Only ratios of readings of one meter mean anything."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

import pymongo

from mulligan.core.contract import Store
from mulligan.stores import open_store
from mulligan.stores.sqlite import SQLiteStore
from tests.flat.examined import at_rest, examined
from tests.outages.conftest import SERVERS
from tests.outages.drain import place
from tests.servers import Server
from tests.sqlite.tracing import steps_of

PROFILE_BYTES = 64 * 1024 * 1024
Work = Callable[[Store], Awaitable[None]]


class Meter(ABC):
    """Makes stores, and measures work on them."""

    unit: str

    @abstractmethod
    def make(self) -> Store:
        """An empty store, not yet opened."""

    @abstractmethod
    async def cost(self, store: Store, work: Work) -> int:
        """What the store looks at for some work. It is open before and after."""


class CallMeter(Meter):
    """The memory store: calls of functions inside the package, which are steps of Python."""

    unit = "calls"

    def make(self) -> Store:
        return open_store("memory://")

    async def cost(self, store: Store, work: Work) -> int:
        calls = 0

        def count(frame: FrameType, event: str, _: Any) -> None:
            nonlocal calls
            calls += event in ("call", "c_call") and "mulligan" in frame.f_code.co_filename

        sys.setprofile(count)
        try:
            await work(store)
        finally:
            sys.setprofile(None)
        return calls


class StepMeter(Meter):
    """SQLite: steps of its machine, in hundreds."""

    unit = "hundred steps"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stores = 0

    def make(self) -> Store:
        self._stores += 1
        return SQLiteStore(self._folder / f"{self._stores}.db", durability="normal")

    async def cost(self, store: Store, work: Work) -> int:
        assert isinstance(store, SQLiteStore)
        return await steps_of(store, work)


class CounterMeter(Meter):
    """A server: rows, keys and documents, or commands, by its own counters. It must be one that nobody else uses."""

    unit = "examined"

    def __init__(self, server: Server) -> None:
        self._server = server

    def make(self) -> Store:
        return open_store(place(self._server.url))

    async def cost(self, store: Store, work: Work) -> int:
        await at_rest(self._server)
        readings = []
        for part in (None, work):  # what opening and closing cost is taken off
            await store.close()
            before = examined(self._server)
            await store.open()
            if part is not None:
                await part(store)
            await store.close()
            readings.append(examined(self._server) - before)
            await store.open()
        return readings[1] - readings[0]


class ProfileMeter(Meter):
    """MongoDB: keys and documents, as its profiler notes them for every operation on the database of one store; the counters of the server
    also have what it does for itself."""

    unit = "examined"

    def __init__(self, server: Server) -> None:
        self._server = server
        self._databases: dict[int, str] = {}

    def make(self) -> Store:
        url = place(self._server.url)
        store = open_store(url)
        self._databases[id(store)] = urlsplit(url).path.strip("/")
        return store

    async def cost(self, store: Store, work: Work) -> int:
        client: pymongo.MongoClient[dict[str, Any]] = pymongo.MongoClient(self._server.url)
        try:
            database = client[self._databases[id(store)]]
            database.drop_collection("system.profile")
            database.create_collection("system.profile", capped=True, size=PROFILE_BYTES)
            database.command("profile", 2)
            await work(store)
            database.command("profile", 0)
            noted = database["system.profile"].find(
                {"ns": {"$ne": f"{database.name}.system.profile"}}, {"keysExamined": 1, "docsExamined": 1}
            )
            return sum(int(one.get("keysExamined", 0)) + int(one.get("docsExamined", 0)) for one in noted)
        finally:
            client.close()


@contextmanager
def meter_of(backend: str, folder: Path) -> Iterator[Meter]:
    """The meter of a store; where it has a server, that is started for the time."""
    if backend in SERVERS:
        with SERVERS[backend]() as server:
            yield {"mongo": ProfileMeter}.get(backend, CounterMeter)(server)
    else:
        yield {"memory": CallMeter, "sqlite": lambda: StepMeter(folder)}[backend]()
