"""Where one step is measured: an empty database, an empty Redis, a new file. On servers of this run's own, so that emptying is harmless."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from tests.servers import Postgres, Redis, Server, ServerFailed


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
                yield Place(f"sqlite:///{folder / 'jobs.db'}", folder, None)
            elif store == "redis":
                server = self._server("redis")
                _empty_redis(server.url)
                yield Place(server.url, folder, server.pid)
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
                self._servers[kind] = self._stack.enter_context(Redis() if kind == "redis" else Postgres())
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
