"""Fixtures for what only the Redis store has: keys, scripts, a server with settings of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from mulligan.core.clock import ManualClock
from mulligan.stores.redis import RedisStore, from_url
from tests.servers import Redis, fresh_url


@pytest.fixture
def url() -> str:
    """An empty place on the server that all tests share."""
    return fresh_url("redis")


@pytest.fixture
async def store(url: str, clock: ManualClock) -> AsyncIterator[RedisStore]:
    """An open, empty store on the test's clock."""
    store = from_url(url, clock)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def server() -> Iterator[Redis]:
    """A server of the test's own."""
    with Redis() as server:
        yield server


@pytest.fixture
async def own(server: Redis) -> AsyncIterator[RedisStore]:
    """An open store on a server of the test's own, on the server's clock."""
    store = from_url(server.url)
    await store.open()
    yield store
    await store.close()
