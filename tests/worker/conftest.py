"""What the tests of the worker share."""

from __future__ import annotations

import pytest

from tests.conftest import BACKENDS


@pytest.fixture(params=[name for name in BACKENDS if name in ("memory", "sqlite")])
def local_backend(request: pytest.FixtureRequest) -> str:
    """A store of this process, for long scenes of whole fleets: shorter ones show the same on every store."""
    return str(request.param)
