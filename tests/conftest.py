"""Fixtures every test may use. A store joins the conformance suite and the model by one line in URLS."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Callable, Generator
from pathlib import Path

import pytest
from hypothesis import settings

from mulligan.core.clock import Clock, ManualClock
from mulligan.core.contract import Store
from mulligan.stores import open_store
from tests.servers import folder as servers
from tests.servers import namespaces

# The name of a store, and how its URL comes from a folder of the test's own: the same folder, the same rows.
URLS: dict[str, Callable[[Path], str]] = {
    "memory": lambda folder: "memory://",
    "sqlite": lambda folder: f"sqlite:///{folder}/jobs.db",
    "postgres": lambda folder: namespaces.held_url("postgres", str(folder)),
    "mongo": lambda folder: namespaces.held_url("mongo", str(folder)),
    "redis": lambda folder: namespaces.held_url("redis", str(folder)),
}
# Stores whose rows outlive the app that wrote them.
DURABLE = URLS.keys() - {"memory"}


def chosen_backends() -> dict[str, Callable[[Path], str]]:
    """All stores, or those named in MULLIGAN_TEST_BACKENDS, separated by commas."""
    names = [name.strip() for name in os.environ.get("MULLIGAN_TEST_BACKENDS", "").split(",") if name.strip()]
    if unknown := set(names) - set(URLS):
        raise pytest.UsageError(f"MULLIGAN_TEST_BACKENDS names {', '.join(sorted(unknown))}; choose from {', '.join(URLS)}")
    return {name: URLS[name] for name in names or URLS}


BACKENDS = chosen_backends()

# The normal suite always tries the same examples, so that a red run means a changed program. HYPOTHESIS_PROFILE=long looks for new ones.
settings.register_profile("normal", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("long", deadline=None, derandomize=False, print_blob=True, max_examples=2_000, stateful_step_count=80)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "normal"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One process more than the machine has processors: many tests do nothing but wait, for a server, a child or the end of a lease."""
    return (os.cpu_count() or 1) + 1


def pytest_configure(config: pytest.Config) -> None:
    """The run's servers end with this process. It hands their folder on to the workers of pytest-xdist, which do nothing here.

    A run in the background of a shell without job control ignores Ctrl-C, and so would the processes that tests interrupt.
    """
    servers.current_run()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Closes what this process has open; the owner of the run then stops its servers."""
    namespaces.close_all()
    servers.end_run()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, object, object]:
    """After all fixtures of a test are gone, the namespaces it used are free for the next one."""
    try:
        return (yield)
    finally:
        namespaces.release_all()


def url_of(backend: str, folder: Path) -> str:
    """The URL of a store of this backend: the same one for the same folder until the test ends, an empty one for another folder.

    A process keeps the namespaces of the last eight folders on each server; a test that needs more of them at once gets the first
    one again, emptied.
    """
    return BACKENDS[backend](folder)


def make_store(backend: str, folder: Path, clock: Clock | None) -> Store:
    """A store of this backend, not yet opened."""
    return open_store(url_of(backend, folder), clock=clock)


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
