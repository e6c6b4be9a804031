"""The places in which `mulligan bench` measures: made for one measurement, removed after it, apart from everybody's jobs.

SQLite: a file in a new folder, beside the file that was named. PostgreSQL: a schema. MongoDB: a database. Redis: the keys of an app.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from mulligan.core.errors import StoreUnavailable
from mulligan.stores import file_of, redacted

KINDS = {
    "sqlite": "sqlite",
    "postgresql": "postgres",
    "postgres": "postgres",
    "mongodb": "mongo",
    "mongodb+srv": "mongo",
    "redis": "redis",
    "rediss": "redis",
}
# The options of our URLs that a driver does not know.
OURS = {"schema", "pgbouncer", "app", "durability", "dead_letters", "connections", "timeout"}
REMOVED_AT_ONCE = 1_000  # keys of Redis
REMOVAL_S = 60
REMOVAL_TRIES, REMOVAL_PAUSE_S = 5, 0.3


class Place(NamedTuple):
    """Where one measurement happens."""

    kind: str
    url: str  # for our store
    driver_url: str  # for a driver; of SQLite the file
    namespace: str  # the schema, the database or the app; of SQLite what a commit waits for


class Scratch:
    """Makes the places of one run, on the server or beside the file that a URL names; in a temporary folder if there is no URL."""

    def __init__(self, store: str | None, folder: Path, durability: str, *, word: str = "bench") -> None:
        self._store = store
        self._folder = folder
        self._durability = durability
        self._token = new_token()
        self._word = word  # the names of its places begin with it

    @property
    def kind(self) -> str:
        """The kind of store."""
        return "sqlite" if self._store is None else kind_of(self._store)

    @asynccontextmanager
    async def place(self, name: str) -> AsyncIterator[Place]:
        """An empty place, which is removed at the end. The name is a word of small letters and digits."""
        place = self._made(f"{self._word}_{self._token}_{name}")
        try:
            yield place
        finally:
            await _removed(place)

    def _made(self, name: str) -> Place:
        if self.kind == "sqlite":
            options = {"durability": self._durability, **dict(parse_qsl(urlsplit(self._store or "").query))}
            file = str((self._folder / f"{name}.db").resolve())
            return Place("sqlite", f"sqlite:///{quote(file)}?{urlencode(options)}", file, options["durability"])
        assert self._store is not None
        url = self._store
        if self.kind == "mongo":
            url = _with_database(url, f"mulligan_{name}")
            return Place("mongo", url, _for_driver(url), f"mulligan_{name}")
        option, namespace = ("schema", f"mulligan_{name}") if self.kind == "postgres" else ("app", name)
        return Place(self.kind, _with_option(url, option, namespace), _for_driver(url), namespace)


def new_token() -> str:
    """What the names of all places of one run have in common, and nothing else has."""
    return secrets.token_hex(4)


def kind_of(url: str) -> str:
    """The kind of store a URL names; it must name one that other processes can see."""
    return KINDS[url.partition(":")[0].lower()]


def folder_beside(store: str | None) -> Path | None:
    """The folder in which temporary files have to be, so that they are on the same disk as the file that was named; None: anywhere."""
    path = file_of(store) if store is not None else None
    if path is None:
        return None
    folder = Path(path).resolve().parent
    if not folder.is_dir():
        raise StoreUnavailable(f"{folder} does not exist; correct --store, or create that folder")
    return folder


def _with_option(url: str, name: str, value: str) -> str:
    parts = urlsplit(url)
    options = [pair for pair in parse_qsl(parts.query, keep_blank_values=True) if pair[0] != name]
    return urlunsplit(parts._replace(query=urlencode([*options, (name, value)])))


def _with_database(url: str, name: str) -> str:
    """The same server, another database; a login that was looked up in the old one still is."""
    parts = urlsplit(url)
    before = parts.path.strip("/")
    changed = urlunsplit(parts._replace(path=f"/{name}"))
    if "@" in parts.netloc and before and "authSource" not in dict(parse_qsl(parts.query)):
        return _with_option(changed, "authSource", before)
    return changed


def _for_driver(url: str) -> str:
    parts = urlsplit(url)
    theirs = [pair for pair in parse_qsl(parts.query, keep_blank_values=True) if pair[0] not in OURS]
    return urlunsplit(parts._replace(query=urlencode(theirs)))


async def _removed(place: Place) -> None:
    """Removes what is left of a measurement, or tells what has to be removed by hand."""
    try:
        async with asyncio.timeout(REMOVAL_S):
            await _tried(lambda: _REMOVERS[place.kind](place))
    except Exception as problem:
        name = type(problem).__name__
        raise StoreUnavailable(
            f"{place.namespace}, made for the measurement, is still in {redacted(place.url)} ({name}); remove it"
        ) from problem


async def _tried(removal: Callable[[], Awaitable[None]]) -> None:
    """Once more, if a connection broke."""
    for _ in range(REMOVAL_TRIES - 1):
        try:
            return await removal()
        except Exception:  # noqa: BLE001 - of whatever driver; the last try tells
            await asyncio.sleep(REMOVAL_PAUSE_S)
    return await removal()


async def _remove_file(place: Place) -> None:
    for suffix in ("", "-wal", "-shm"):
        Path(place.driver_url + suffix).unlink(missing_ok=True)  # noqa: ASYNC240 - three small files


async def _remove_schema(place: Place) -> None:
    import asyncpg

    connection = await asyncpg.connect(place.driver_url)
    try:
        drop = await connection.fetchval("SELECT format('DROP SCHEMA IF EXISTS %I CASCADE', $1::text)", place.namespace)
        await connection.execute("SET client_min_messages = warning")
        await connection.execute(drop)
    finally:
        await connection.close()


async def _remove_database(place: Place) -> None:
    from pymongo import AsyncMongoClient

    async with AsyncMongoClient[dict[str, object]](place.driver_url) as client:
        await client.drop_database(place.namespace)


async def _remove_keys(place: Place) -> None:
    from redis.asyncio import Redis

    async with Redis.from_url(place.driver_url) as client:
        found: list[bytes] = []
        async for key in client.scan_iter(match=f"{{{place.namespace}}}*", count=REMOVED_AT_ONCE):
            found.append(key)
            if len(found) == REMOVED_AT_ONCE:
                await client.unlink(*found)
                found = []
        if found:
            await client.unlink(*found)


_REMOVERS: dict[str, Callable[[Place], Awaitable[None]]] = {
    "sqlite": _remove_file,
    "postgres": _remove_schema,
    "mongo": _remove_database,
    "redis": _remove_keys,
}


def shown_place(store: str | None) -> str:
    """Where it is measured, in words."""
    if store is None:
        return "temporary SQLite files"
    words = {
        "sqlite": "temporary files beside {}",
        "postgres": "a schema of its own in {}",
        "mongo": "a database of its own beside {}",
        "redis": "keys of an app of its own in {}",
    }
    return words[kind_of(store)].format(redacted(store))
