"""What the tests of `mulligan torture` share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import BACKENDS, DURABLE, url_of
from tests.torture.command import Torture


@pytest.fixture(params=[name for name in BACKENDS if name in DURABLE])
def torture(request: pytest.FixtureRequest, tmp_path: Path) -> Torture:
    """The command on a store that processes can share: the test runs once for each."""
    return Torture(url_of(request.param, tmp_path), tmp_path)


@pytest.fixture
def file_torture(tmp_path: Path) -> Torture:
    """The command on a file, for what has nothing to do with the store."""
    return Torture(f"sqlite:///{tmp_path}/jobs.db", tmp_path)
