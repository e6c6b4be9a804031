"""Fixtures for what only the SQLite store has: a file, two threads, other processes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mulligan.core.clock import ManualClock
from mulligan.stores.sqlite import SQLiteStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the test's database is, or will be."""
    return tmp_path / "jobs.db"


@pytest.fixture
async def store(path: Path, clock: ManualClock) -> AsyncIterator[SQLiteStore]:
    """An open, empty SQLite store on the test's clock."""
    store = SQLiteStore(path, clock=clock)
    await store.open()
    yield store
    await store.close()
