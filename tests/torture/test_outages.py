"""`mulligan torture` with outages: servers that crash and come back, wires that break, and the full size on every store."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mulligan.torture.ledger import Ledger
from mulligan.torture.tasks import LEDGER_FILE
from tests.conftest import BACKENDS
from tests.outages.drain import place
from tests.servers import Mongo, Postgres, Proxy, Redis, Server
from tests.torture.command import Torture
from tests.torture.restarting import Restarter

SERVERS: dict[str, type[Server]] = {"postgres": Postgres, "mongo": Mongo, "redis": Redis}
ZEROS = ("violations", "lost", "rerun", "phantom", "over_limit", "stale_accepted", "overlap", "early", "effect")
FULL = {"jobs": 100_000, "kills": 1_000, "pauses": 200, "restarts": 10, "lease": 2, "slack": 0}
BREAK_S, CALM_S, BREAKS = 0.5, 4.0, 8  # after so many breaks there is a calm, in which times are held to their bounds
WIRES = {"jobs": 20_000, "kills": 200, "pauses": 40, "slack": 1}
# A time-out for each size: one at the function would hold for all of them.
short = pytest.mark.timeout(300)
full = [pytest.mark.torture, pytest.mark.timeout(7_200)]


@pytest.fixture(params=[name for name in SERVERS if name in BACKENDS])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server of the test's own."""
    with SERVERS[request.param]() as server:
        yield server


def check(report: dict[str, Any], restarts: int) -> None:
    """Nothing is wrong, and the outages have happened."""
    assert [report[name] for name in ZEROS] == [0] * len(ZEROS)
    assert "stuck" not in report
    assert report["restarts"] == restarts


@pytest.mark.parametrize(
    "size", [pytest.param({"jobs": 300, "kills": 6, "pauses": 2, "restarts": 2, "cuts": 4}, marks=short), pytest.param(FULL, marks=full)]
)
def test_a_server_that_crashes_takes_nothing_along(server: Server, tmp_path: Path, size: dict[str, int]) -> None:
    """Stopped as a crash would, and started again, between kills, pauses and cut connections (faults 48, 58, 64)."""
    with Restarter(server, tmp_path) as restarter:
        report = Torture(place(server.url), tmp_path).run(restart_command=restarter.command, **size)
        assert restarter.restarts == size["restarts"]
    check(report, size["restarts"])
    assert report["cuts"] == report["faults"].get("reset", 0) == size.get("cuts", 0)
    assert report["cut_connections"] >= report["cuts"]
    assert report["done_share"] >= (0.999 if size is FULL else 0.9)
    assert size is not FULL or report["stale_refused"] > 0  # jobs that outlived their leases tried to write


@pytest.mark.torture
@pytest.mark.timeout(7_200)
def test_the_full_size_on_a_file(file_torture: Torture) -> None:
    """The file is locked by a foreign program for 30 s, ten times (fault 40)."""
    report = file_torture.run(**FULL)
    check(report, FULL["restarts"])
    assert report["done_share"] >= 0.999
    assert report["stale_refused"] > 0


@pytest.mark.parametrize("size", [pytest.param({"jobs": 150, "kills": 2, "pauses": 0}, marks=short), pytest.param(WIRES, marks=full)])
def test_wires_that_break_all_the_time(server: Server, tmp_path: Path, size: dict[str, int]) -> None:
    """Every connection is reset twice a second, with a calm now and then, while workers are killed and stopped (faults 64, 68)."""
    over = threading.Event()
    with Proxy(server.url) as proxy:
        torture = Torture(proxy.url_of(place(server.url)), tmp_path)

        def break_wires() -> None:
            for number in itertools.count(1):
                if over.wait(BREAK_S if number % BREAKS else CALM_S):
                    return
                if torture.ledger.exists():
                    noted = Ledger(torture.ledger / LEDGER_FILE)
                    noted.note("NEMESIS", step="start", how="reset")
                    proxy.reset()
                    noted.note("NEMESIS", step="stop", how="reset")
                    noted.close()

        breaker = threading.Thread(target=break_wires)
        breaker.start()
        try:
            report = torture.run(lease=2, **size)
        finally:
            over.set()
            breaker.join()
    check(report, 0)
    assert report["faults"]["reset"] > 2
    assert size is not WIRES or report["stale_refused"] > 0
