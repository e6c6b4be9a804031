"""Fixtures for what only the PostgreSQL store has: a schema that tests look into, and connections of the application's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from mulligan.core.clock import Clock, ManualClock
from mulligan.stores.postgres import PostgresStore, from_url
from tests.servers import namespaces


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The URL of an empty schema of the test's own."""
    return namespaces.held_url("postgres", str(tmp_path))


@pytest.fixture
def server_url(url: str) -> str:
    """The same database, as drivers know it."""
    return url.partition("?")[0]


@pytest.fixture
def schema(url: str) -> str:
    """The name of the schema."""
    return url.partition("schema=")[2].partition("&")[0]


@pytest.fixture
def make(url: str) -> Callable[[Clock | None], PostgresStore]:
    """Makes unopened stores in that schema."""
    return lambda clock: from_url(url, clock=clock)


@pytest.fixture
async def store(url: str, clock: ManualClock) -> AsyncIterator[PostgresStore]:
    """An open, empty PostgreSQL store on the test's clock."""
    store = from_url(url, clock=clock)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def real(url: str) -> AsyncIterator[PostgresStore]:
    """An open, empty PostgreSQL store on the server's own clock."""
    store = from_url(url)
    await store.open()
    yield store
    await store.close()


class Raw:
    """A connection beside the store's, for looking and for damage. `{s}` stands for the schema."""

    def __init__(self, connection: psycopg.Connection[Any], schema: str) -> None:
        self.connection = connection
        self._schema = sql.Identifier(schema)

    def run(self, statement: str, params: tuple[Any, ...] = ()) -> int:
        """Executes a statement; how many rows it touched."""
        return self.connection.execute(sql.SQL(statement).format(s=self._schema), params).rowcount

    def rows(self, statement: str, params: tuple[Any, ...] = ()) -> list[Any]:
        """The rows of a query."""
        return self.connection.execute(sql.SQL(statement).format(s=self._schema), params).fetchall()


@pytest.fixture
def raw(server_url: str, schema: str) -> Iterator[Raw]:
    """A connection of the test's own, which commits every statement."""
    with psycopg.connect(server_url, autocommit=True) as connection:
        yield Raw(connection, schema)
