"""Workers that serve several queues: each queue keeps the shares of its own lanes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from mulligan import Mulligan, Queue, Weighted
from mulligan.policy.planner import LanePlanner
from tests.conftest import url_of
from tests.fairness.bound import shortfall, worst
from tests.fairness.crowd import Crowd, backlog, check_starts
from tests.policy.test_planner import everything, starts

SETTINGS = {"concurrency": 15, "ahead": 10}


@pytest.fixture
async def app(backend: str, tmp_path: Path) -> AsyncIterator[Mulligan]:
    """An app on a new, empty store."""
    async with Mulligan(url_of(backend, tmp_path)) as app:
        yield app


async def test_l3_holds_in_each_of_two_queues(app: Mulligan) -> None:
    """While both queues have work, each keeps the bound of a queue alone, under its own share, and they start equally many."""
    claimers, wanted, shares = 4, 500, {"a": 0.2, "b": 0.5}
    crowd = Crowd(app, *(Queue(name, claim=Weighted(share)) for name, share in shares.items()))
    for name, share in shares.items():
        for lane, count in backlog(wanted * 2, share, claimers, SETTINGS).items():
            await crowd.store_jobs(count, lane, queue=name)
    started = await crowd.run(2 * wanted, [crowd.worker(**SETTINGS) for _ in range(claimers)])
    for name, share in shares.items():
        checked = crowd.while_all_wait(started, name)
        assert len(checked) >= wanted - 2 * claimers
        check_starts(checked, share, claimers)
        assert shortfall((start.queue == name for start in started[: 2 * wanted]), 0.5).lacks <= 2 * claimers


def test_slots_that_do_not_divide_go_round() -> None:
    """Claims of one job and of two in turn: each of two queues has half of all starts, whichever claim had one too many."""
    planner = LanePlanner([Queue("a"), Queue("b")], Random(1))
    queues = [job.queue for job in starts(planner, [1, 2] * 100, everything)]
    assert shortfall((queue == "a" for queue in queues), 0.5).lacks <= 1.5
    assert shortfall((queue == "b" for queue in queues), 0.5).lacks <= 1.5


async def test_a_queue_beside_an_idle_one_keeps_its_shares_within_a_few_starts(app: Mulligan) -> None:
    """What an idle queue lends is split by guarantees, not by credit: a few starts more for each claimer, made up for by later claims."""
    claimers, wanted, share = 4, 1_000, 0.2
    crowd = Crowd(app, Queue("q"), Queue("idle"))
    for lane, count in backlog(wanted, share, claimers, SETTINGS).items():
        await crowd.store_jobs(count, lane)
    checked = crowd.while_all_wait(await crowd.run(wanted, [crowd.worker(**SETTINGS) for _ in range(claimers)]))
    assert len(checked) >= wanted - 20
    assert worst([start.lane for start in checked], share).lacks <= 4 * claimers
    by_worker: dict[str, list[str]] = {}
    for start in checked:
        by_worker.setdefault(start.worker, []).append(start.lane)
    assert max(worst(lanes, share).lacks for lanes in by_worker.values()) <= 4
