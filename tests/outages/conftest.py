"""Servers of a test module's own, to be stopped and killed, and a wire to each that can be cut."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import BACKENDS
from tests.servers import Mongo, Postgres, Proxy, Redis, Server

SERVERS: dict[str, type[Server]] = {"postgres": Postgres, "mongo": Mongo, "redis": Redis}


@pytest.fixture(scope="module", params=[name for name in SERVERS if name in BACKENDS])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server that only this module's tests use: each of them runs once for each kind."""
    with SERVERS[request.param]() as server:
        yield server


@pytest.fixture
def running(server: Server) -> Server:
    """The server, up, whatever the test before has done to it."""
    return server.start()


@pytest.fixture
def proxy(running: Server) -> Iterator[Proxy]:
    """A wire to the server."""
    with Proxy(running.url) as proxy:
        yield proxy


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hardly a pause before a broken call is made again: for tests of what the repeat then finds.

    MongoDB's driver looks up only every half second, both to hear that a connection was lost and to ask for the server again.
    """
    monkeypatch.setattr("mulligan.stores.network.store.REPEAT_WAIT_S", 0.01)
    monkeypatch.setattr("pymongo.common.MIN_HEARTBEAT_INTERVAL", 0.01)
    monkeypatch.setattr("pymongo.network_layer._POLL_TIMEOUT", 0.01)
