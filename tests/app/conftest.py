"""An app of the test's own on each store, with real time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mulligan import Mulligan
from tests.conftest import url_of


@pytest.fixture
def url(backend: str, tmp_path: Path) -> str:
    """The URL of a new, empty store."""
    return url_of(backend, tmp_path)


@pytest.fixture
async def app(url: str) -> AsyncIterator[Mulligan]:
    """An open app without tasks."""
    async with Mulligan(url) as app:
        yield app
