"""What the tests with several processes share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from mulligan import Mulligan
from tests.processes.children import Nursery
from tests.processes.ledger import Ledger
from tests.processes.tasks import make_app


@pytest.fixture
def nursery(tmp_path: Path) -> Iterator[Nursery]:
    """The children of this test, on a file of its own."""
    nursery = Nursery(tmp_path)
    yield nursery
    nursery.clear()


@pytest.fixture
async def app(nursery: Nursery) -> AsyncIterator[Mulligan]:
    """The test's own app on the same file; what it notes goes to another ledger."""
    ledger = Ledger(nursery.folder / "own-ledger.txt")
    async with make_app(nursery.url, ledger) as app:
        yield app
    ledger.close()
