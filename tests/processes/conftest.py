"""What the tests with several processes share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from mulligan import Mulligan
from tests.conftest import BACKENDS, DURABLE, url_of
from tests.processes.children import Nursery
from tests.processes.ledger import Ledger
from tests.processes.tasks import make_app


@pytest.fixture(params=[name for name in BACKENDS if name in DURABLE])
def nursery(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Nursery]:
    """The children of this test, on a store of its own: the test runs once for each store that processes can share."""
    nursery = Nursery(tmp_path, url_of(request.param, tmp_path))
    yield nursery
    nursery.clear()


@pytest.fixture
def file_nursery(tmp_path: Path) -> Iterator[Nursery]:
    """The same, for what only a file can suffer."""
    nursery = Nursery(tmp_path, f"sqlite:///{tmp_path}/jobs.db")
    yield nursery
    nursery.clear()


@pytest.fixture
async def file_app(file_nursery: Nursery) -> AsyncIterator[Mulligan]:
    """The test's own app on that file."""
    ledger = Ledger(file_nursery.folder / "own-ledger.txt")
    async with make_app(file_nursery.url, ledger) as app:
        yield app
    ledger.close()


@pytest.fixture
async def app(nursery: Nursery) -> AsyncIterator[Mulligan]:
    """The test's own app on the same store; what it notes goes to another ledger."""
    ledger = Ledger(nursery.folder / "own-ledger.txt")
    async with make_app(nursery.url, ledger) as app:
        yield app
    ledger.close()
