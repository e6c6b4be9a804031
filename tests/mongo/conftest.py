"""Fixtures for what only the MongoDB store has: a database that can be looked into from outside."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pymongo import MongoClient
from pymongo.database import Database

from mulligan.core.clock import ManualClock
from mulligan.stores.mongo import MongoStore, from_url
from tests.servers import held_url

Raw = Database[dict[str, Any]]


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The URL of the test's own, empty database."""
    return held_url("mongo", str(tmp_path))


@pytest.fixture
async def store(url: str, clock: ManualClock) -> AsyncIterator[MongoStore]:
    """An open, empty MongoDB store on the test's clock."""
    store = from_url(url, clock=clock)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def raw(url: str) -> Iterator[Raw]:
    """The test's database, for a look past the store."""
    client: MongoClient[dict[str, Any]] = MongoClient(url)
    try:
        yield client[urlsplit(url).path.strip("/")]
    finally:
        client.close()
