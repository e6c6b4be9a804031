"""Fixtures every test may use. A store joins the conformance suite and the model by one line in BACKENDS."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from hypothesis import settings

from mulligan.core.clock import Clock, ManualClock
from mulligan.core.contract import Store
from mulligan.stores import open_store

# The name of a store, and its URL in a folder of the test's own.
BACKENDS = {
    "memory": "memory://",
    "sqlite": "sqlite:///{folder}/jobs.db",
}

# The normal suite always tries the same examples, so that a red run means a changed program. HYPOTHESIS_PROFILE=long looks for new ones.
settings.register_profile("normal", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("long", deadline=None, derandomize=False, print_blob=True, max_examples=2_000, stateful_step_count=80)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "normal"))


def make_store(backend: str, folder: Path, clock: Clock | None) -> Store:
    """A store of this backend, not yet opened."""
    return open_store(BACKENDS[backend].format(folder=folder), clock=clock)


@pytest.fixture(params=list(BACKENDS))
def backend(request: pytest.FixtureRequest) -> str:
    """The name of the store under test: a test that uses it, even through `store`, runs once per store."""
    return str(request.param)


@pytest.fixture
def clock() -> ManualClock:
    """The time of the `store` fixture: it stands still until the test moves it."""
    return ManualClock()


@pytest.fixture
def unopened(backend: str, tmp_path: Path, clock: ManualClock) -> Store:
    """A new, empty store on the test's clock that nobody has opened yet."""
    return make_store(backend, tmp_path, clock)


@pytest.fixture
async def store(unopened: Store) -> AsyncIterator[Store]:
    """An open, empty store on the test's clock."""
    await unopened.open()
    yield unopened
    await unopened.close()


@pytest.fixture
def store_maker(backend: str, tmp_path: Path) -> Callable[[Clock | None], Store]:
    """Makes unopened stores of this backend on a clock of the test's choice; durable ones share their rows."""
    return lambda clock: make_store(backend, tmp_path, clock)
