"""A supervisor on a file, and one on each store that processes can share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mulligan import Mulligan
from tests.conftest import BACKENDS, DURABLE, url_of
from tests.supervisor import program
from tests.supervisor.fleet import Fleet


@asynccontextmanager
async def opened(folder: Path, url: str) -> AsyncIterator[Fleet]:
    """The fleet of one test, and its app."""
    app = Mulligan(url, retry=program.POLICY)
    for task in program.app.registry:
        app.declare(task.name, timeout=None if task.timeout_us is None else task.timeout_us / 1_000_000)
    async with app:
        fleet = Fleet(folder, url, app)
        try:
            yield fleet
        finally:
            fleet.clear()


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    """On a file."""
    async with opened(tmp_path, f"sqlite:///{tmp_path}/jobs.db") as fleet:
        yield fleet


@pytest.fixture(params=[name for name in BACKENDS if name in DURABLE])
async def any_fleet(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Fleet]:
    """The test runs once for each store that processes can share."""
    async with opened(tmp_path, url_of(request.param, tmp_path)) as fleet:
        yield fleet
