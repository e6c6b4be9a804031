"""Where one step is measured: an empty database, an empty Redis, a new file. On servers of this run's own, so that emptying is harmless."""

from __future__ import annotations

import itertools
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from tests.servers import Mongo, Postgres, Redis, Server, ServerFailed
from tests.servers.urls import with_database

KINDS: dict[str, type[Server]] = {"mongo": Mongo, "postgres": Postgres, "redis": Redis}


class Place(NamedTuple):
    """One empty store."""

    url: str
    folder: Path  # for files of this step
    server_pid: int | None


class Places:
    """Starts a server when the first step needs it, and ends all with the run."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._servers: dict[str, Server | ServerFailed] = {}
        self._numbers = itertools.count()
        self.versions: dict[str, str] = {}  # of the servers that were started, and of SQLite

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    @contextmanager
    def place(self, store: str) -> Iterator[Place]:
        """An empty store, gone after the step."""
        with tempfile.TemporaryDirectory(prefix="bench-peer-", ignore_cleanup_errors=True) as name:
            folder = Path(name)
            if store == "sqlite":
                self.versions["sqlite"] = sqlite3.sqlite_version
                yield Place(f"sqlite:///{folder / 'jobs.db'}", folder, None)
            elif store == "redis":
                server = self._server("redis")
                _empty_redis(server.url)
                yield Place(server.url, folder, server.pid)
            elif store == "mongo":
                server = self._server("mongo")
                database = f"bench_{next(self._numbers)}"
                _empty_mongo(server.url, database)
                try:
                    yield Place(with_database(server.url, database), folder, server.pid)
                finally:
                    _empty_mongo(server.url, database)
            else:
                server = self._server("postgres")
                database = f"bench_{next(self._numbers)}"
                _administer(server.url, f"CREATE DATABASE {database}", "CHECKPOINT")
                try:
                    yield Place(server.url.rpartition("/")[0] + f"/{database}", folder, server.pid)
                finally:
                    _administer(server.url, f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")

    def _server(self, kind: str) -> Server:
        """The server of a kind. One that did not start is not tried again: each try takes long, and many steps want it."""
        if kind not in self._servers:
            try:
                server = self._servers[kind] = self._stack.enter_context(KINDS[kind]())
                self.versions[kind] = VERSIONS[kind](server.url)
            except ServerFailed as problem:
                self._servers[kind] = problem
        found = self._servers[kind]
        if isinstance(found, ServerFailed):
            raise found
        return found


def _administer(url: str, *statements: str) -> None:
    import psycopg

    try:
        with psycopg.connect(url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())
    except psycopg.Error as problem:
        raise ServerFailed(f"PostgreSQL: {problem}") from problem


def _empty_redis(url: str) -> None:
    import redis

    try:
        with redis.Redis.from_url(url) as client:
            client.flushall()
    except redis.RedisError as problem:
        raise ServerFailed(f"Redis: {problem}") from problem


def _empty_mongo(url: str, database: str) -> None:
    import pymongo
    from pymongo.errors import PyMongoError

    try:
        with pymongo.MongoClient[dict[str, object]](url) as client:
            client.drop_database(database)
            client.admin.command("fsync")  # what a step before has left to be written is no part of the next
    except PyMongoError as problem:
        raise ServerFailed(f"MongoDB: {problem}") from problem


def _postgres_version(url: str) -> str:
    import psycopg

    with psycopg.connect(url) as connection:
        return f"{connection.info.server_version // 10_000}.{connection.info.server_version % 10_000}"


def _redis_version(url: str) -> str:
    import redis

    with redis.Redis.from_url(url) as client:
        return str(client.info("server")["redis_version"])


def _mongo_version(url: str) -> str:
    import pymongo

    with pymongo.MongoClient[dict[str, object]](url) as client:
        return str(client.server_info()["version"])


VERSIONS: dict[str, Callable[[str], str]] = {"mongo": _mongo_version, "postgres": _postgres_version, "redis": _redis_version}
