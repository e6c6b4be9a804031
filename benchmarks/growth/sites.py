"""Empty places for a measurement, on servers of the run's own: their counters and sizes are then ours."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from tests.outages.drain import place
from tests.servers import KINDS, Server

STORES = ("sqlite", "postgres", "mongo", "redis")


class Sites:
    """Starts a server when it is first needed, and ends all with the run."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._servers: dict[str, Server] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def server(self, store: str) -> Server | None:
        """The server of a store; None where it is a file."""
        if store == "sqlite":
            return None
        if store not in self._servers:
            self._servers[store] = self._stack.enter_context(KINDS[store]())
        return self._servers[store]

    @contextmanager
    def site(self, store: str) -> Iterator[str]:
        """The URL of an empty store, which is removed afterwards."""
        server = self.server(store)
        if server is None:
            with tempfile.TemporaryDirectory(prefix="growth-", ignore_cleanup_errors=True) as folder:
                yield f"sqlite:///{folder}/jobs.db"
            return
        url = place(server.url)
        try:
            yield url
        finally:
            _REMOVALS[store](server.url, url)


def _drop_schema(server: str, url: str) -> None:
    import psycopg
    from psycopg import sql

    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(url.partition("schema=")[2])))


def _drop_database(server: str, url: str) -> None:
    import pymongo

    client: pymongo.MongoClient[dict[str, Any]] = pymongo.MongoClient(server)
    try:
        client.drop_database(urlsplit(url).path.strip("/"))
    finally:
        client.close()


def _remove_keys(server: str, url: str) -> None:
    """Every key of one app, in portions: others may still be measured on this server."""
    import redis

    client = redis.Redis.from_url(server)
    try:
        keys: list[bytes] = []
        for key in client.scan_iter(f"*{{{url.partition('app=')[2]}}}*", count=5_000):
            keys.append(key)
            if len(keys) >= 5_000:
                client.unlink(*keys)
                keys = []
        if keys:
            client.unlink(*keys)
    finally:
        client.close()


_REMOVALS = {"postgres": _drop_schema, "mongo": _drop_database, "redis": _remove_keys}
