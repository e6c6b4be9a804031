"""Priority levels: urgent work comes first, and nothing waits for ever.

In any n starts of a lane while all its levels wait, a lower level has at least share x n - F(1 + share x B) of them, where B is the most
that one claim brings: inside a claim the urgent jobs stand first, so what is due to the others comes at its end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from mulligan import Mulligan, Queue, RetryFirst, Weighted
from mulligan.core.job import LANES
from mulligan.policy.lanes import Strategy
from mulligan.policy.planner import LEVEL_SHARES
from tests.conftest import url_of
from tests.fairness.bound import shortfall
from tests.fairness.crowd import Crowd, check_starts

URGENT, RAISED, NORMAL = 2, 1, 0


@pytest.fixture
async def app(backend: str, tmp_path: Path) -> AsyncIterator[Mulligan]:
    """An app on a new, empty store."""
    async with Mulligan(url_of(backend, tmp_path)) as app:
        yield app


def check_level(levels: Sequence[int], level: int, claimers: int, batch: int) -> None:
    """Holds the starts of one lane against what the level is promised."""
    share = LEVEL_SHARES[level]
    found = shortfall((one == level for one in levels), share)
    assert found.lacks <= claimers * (1 + share * batch), f"starts {found.begin} to {found.end} lack {float(found.lacks)} of level {level}"


@pytest.mark.parametrize("strategy", [Weighted(), RetryFirst()], ids=["weighted", "retry_first"])
@pytest.mark.parametrize("settings", [{"concurrency": 1, "ahead": 0}, {"concurrency": 20, "ahead": 10}], ids=["one by one", "in batches"])
async def test_normal_jobs_start_under_an_endless_stream_of_urgent_ones(
    app: Mulligan, settings: dict[str, int], strategy: Strategy
) -> None:
    """R11: a tenth of the starts is theirs on every store, however many urgent jobs wait, and raised ones have a fifth.

    No retry waits here: what the empty lane lends must not be for the urgent jobs alone.
    """
    claimers, wanted, crowd = 4, 200, Crowd(app, Queue("q", claim=strategy))
    spare = claimers * (settings["concurrency"] + settings["ahead"] + 30)
    for priority, share in {URGENT: 1.0, RAISED: 0.2, NORMAL: 0.1}.items():
        await crowd.store_jobs(round(wanted * share) + spare, "fresh", priority=priority)
    started = crowd.while_all_wait(await crowd.run(wanted, [crowd.worker(**settings) for _ in range(claimers)]))
    assert len(started) >= wanted
    levels = [start.priority for start in started]
    for level in (RAISED, NORMAL):
        check_level(levels, level, claimers, settings["concurrency"] + settings["ahead"])
    assert levels.count(URGENT) >= 0.7 * len(levels) - 2 * claimers  # and no more than is promised is taken from the urgent ones


async def test_lanes_and_levels_keep_their_shares_together(app: Mulligan) -> None:
    """With all levels waiting in both lanes, each lane has its share, and inside it each level."""
    claimers, wanted, share, settings = 2, 400, 0.5, {"concurrency": 10, "ahead": 0}
    crowd = Crowd(app, Queue("q", claim=Weighted(share)))
    for lane in LANES:
        for priority in (URGENT, RAISED, NORMAL):
            await crowd.store_jobs(wanted // 2 if priority == URGENT else wanted // 4, lane, priority=priority)
    started = crowd.while_all_wait(await crowd.run(wanted, [crowd.worker(**settings) for _ in range(claimers)]))
    assert len(started) >= wanted
    check_starts(started, share, claimers)
    for lane in LANES:
        levels = [start.priority for start in started if start.lane == lane]
        for level in (RAISED, NORMAL):
            check_level(levels, level, claimers, settings["concurrency"])


async def test_normal_jobs_start_in_a_queue_that_runs_one_job_at_a_time(app: Mulligan) -> None:
    """Under a limit of the queue, the one slot goes to the level whose turn it is, though the worker asks for twenty jobs each time."""
    wanted, crowd = 100, Crowd(app, Queue("q", concurrency=1))
    for priority, share in {URGENT: 1.0, RAISED: 0.3, NORMAL: 0.2}.items():
        await crowd.store_jobs(round(wanted * share) + 20, "fresh", priority=priority)
    levels = [start.priority for start in crowd.while_all_wait(await crowd.run(wanted, [crowd.worker(concurrency=20, ahead=0)]))]
    assert len(levels) >= wanted
    for level in (RAISED, NORMAL):
        check_level(levels, level, 1, 20)


def test_a_level_that_is_left_out_is_found() -> None:
    """The measure of the tests above: nothing but urgent jobs is too little for the others."""
    with pytest.raises(AssertionError, match="lack 2.1 of level 0"):
        check_level([URGENT] * 21, NORMAL, 1, 1)
    check_level([URGENT] * 9 + [NORMAL], NORMAL, 1, 1)
