"""The fairness bound (L3), checked at every start of real workers.

With F claimers and the retry share r, any n starts in a row that were claimed while both lanes waited hold at least (1-r)n - F fresh jobs
and rn - F retries. F counts the workers that started anything in that window: one that was replaced in the middle of it counts twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from mulligan import Mulligan, Queue, Rate, Weighted
from tests.builders import fresh_id
from tests.conftest import url_of
from tests.fairness.bound import worst
from tests.fairness.crowd import Crowd, backlog, check_starts

scale = [pytest.mark.scale, pytest.mark.timeout(3_600)]
CLAIMERS = (1, 4, 16)
# One slot, a few, many, and many with claim-ahead: a crowd goes round these.
MIXED = [
    {"concurrency": 100, "ahead": 0},
    {"concurrency": 7, "ahead": 50},
    {"concurrency": 1, "ahead": 0},
    {"concurrency": 30, "ahead": 100},
]
LARGEST = {"concurrency": 100, "ahead": 100}  # no smaller than any of them


@pytest.fixture
async def app(backend: str, tmp_path: Path) -> AsyncIterator[Mulligan]:
    """An app on a new, empty store."""
    async with Mulligan(url_of(backend, tmp_path)) as app:
        yield app


@pytest.mark.parametrize("share, claimers, starts", [(0.2, 1, 2_000), (0.2, 4, 2_000), (0.2, 16, 2_000), (0.5, 4, 600), (0.05, 4, 600)])
async def test_l3_every_window_of_starts_holds_both_shares(app: Mulligan, share: float, claimers: int, starts: int) -> None:
    """The bound holds on every store, for one, four and sixteen workers of all sizes, and for other shares than the default."""
    crowd = Crowd(app, Queue("q", claim=Weighted(share)))
    for lane, count in backlog(starts, share, claimers, LARGEST).items():
        await crowd.store_jobs(count, lane)
    started = await crowd.run(starts, [crowd.worker(**MIXED[number % len(MIXED)]) for number in range(claimers)])
    checked = crowd.while_all_wait(started)
    assert len(checked) >= starts
    check_starts(checked, share, claimers)


@pytest.mark.parametrize(
    "queue, tenants",
    [
        (Queue("q"), 5),
        (Queue("q", concurrency=10_000, max_inflight_retries=10_000, rate=Rate(per_s=1_000_000, burst=1_000_000)), 0),
    ],
    ids=["tenants", "wide limits"],
)
async def test_l3_holds_for_careful_claims(app: Mulligan, queue: Queue, tenants: int) -> None:
    """Where jobs have tenants, and where there are limits that do not bind, claims go another way, and the bound is the same."""
    starts, share, claimers, settings = 600, 0.2, 4, {"concurrency": 20, "ahead": 20}
    crowd = Crowd(app, queue)
    for lane, count in backlog(starts, share, claimers, settings).items():
        await crowd.store_jobs(count, lane, tenants=tenants)
    checked = crowd.while_all_wait(await crowd.run(starts, [crowd.worker(**settings) for _ in range(claimers)]))
    assert len(checked) >= starts
    check_starts(checked, share, claimers)


async def test_l3_holds_across_restarts(app: Mulligan) -> None:
    """While workers come and go, each that ever started something counts: it begins with a credit of its own, anywhere below one start."""
    share, crowd, workers = 0.2, Crowd(app, Queue("q")), 10
    settings = {"concurrency": 10, "ahead": 10}
    for lane, count in backlog(1_000, share, workers, settings).items():
        await crowd.store_jobs(count, lane)
    async with AsyncExitStack() as stack:
        crew, leaving = [await stack.enter_async_context(crowd.worker(**settings)) for _ in range(4)], []
        for _ in range(workers - len(crew)):
            await crowd.reached(100, hold=True)
            crew.append(await stack.enter_async_context(crowd.worker(**settings)))
            leaving.append(asyncio.create_task(crew.pop(0).stop()))
        await crowd.reached(100)
        await asyncio.gather(*leaving)
    checked = crowd.while_all_wait(crowd.starts)
    assert len(checked) >= 100 * 7
    check_starts(checked, share, len({start.worker for start in checked}))
    for window in worst([start.lane for start in checked], share):
        assert window.lacks <= len({start.worker for start in checked[window.begin : window.end]})


async def test_l3_holds_from_the_first_claim_after_retries_fall_due(app: Mulligan) -> None:
    """Fresh work has run alone, then a crowd of retries falls due at once: every start that is claimed from then on is within the bound."""
    share, crowd, claimers = 0.2, Crowd(app, Queue("q")), 4
    settings = {"concurrency": 10, "ahead": 20}
    await crowd.store_jobs(3_000, "fresh")
    async with AsyncExitStack() as stack:
        await asyncio.gather(*(stack.enter_async_context(crowd.worker(**settings)) for _ in range(claimers)))
        await crowd.reached(300, hold=True)
        await crowd.store_jobs(1_000, "retry")
        before = fresh_id()
        await crowd.reached(1_000)
    checked = [start for start in crowd.while_all_wait(crowd.starts) if start.claim_id > before]
    assert len(checked) >= 700
    check_starts(checked, share, claimers)


@pytest.mark.parametrize("starts, retries", [pytest.param(100_000, 1_000_000, marks=scale)])
async def test_l3_at_full_size(app: Mulligan, backend: str, starts: int, retries: int) -> None:
    """A million retries due at once; one, four and sixteen workers as they are by default: the bound at each of 10^5 starts."""
    share, crowd = 0.2, Crowd(app, Queue("q"))
    await crowd.store_jobs(retries, "retry")
    for claimers in CLAIMERS:
        settings = {"concurrency": 100, "ahead": 1_000}
        await crowd.store_jobs(backlog(starts, share, sum(CLAIMERS), settings)["fresh"], "fresh")
        started = await crowd.run(starts, [crowd.worker(**settings) for _ in range(claimers)])
        checked = crowd.while_all_wait(started)
        assert len(checked) >= starts
        found, own = check_starts(checked, share, claimers)
        print(
            f"{backend}: {claimers} claimers, {len(checked):,} starts, {retries:,} retries due at once: "
            f"worst window lacks {float(found.fresh.lacks):.2f} fresh, {float(found.retry.lacks):.2f} retries, of one claimer {own:.2f}",
            flush=True,
        )


@pytest.mark.parametrize("share", [pytest.param(share, marks=scale) for share in (0.2, 0.5, 0.05)])
async def test_l3_at_full_size_for_workers_of_all_sizes(app: Mulligan, backend: str, share: float) -> None:
    """One slot, seven, thirty and a hundred, with claim-ahead and without, under three shares."""
    starts, crowd = 20_000, Crowd(app, Queue("q", claim=Weighted(share)))
    for claimers in CLAIMERS:
        for lane, count in backlog(starts, share, sum(CLAIMERS), LARGEST).items():
            await crowd.store_jobs(count, lane)
        started = await crowd.run(starts, [crowd.worker(**MIXED[number % len(MIXED)]) for number in range(claimers)])
        checked = crowd.while_all_wait(started)
        assert len(checked) >= starts
        found, own = check_starts(checked, share, claimers)
        print(
            f"{backend}: share {share}, {claimers} claimers, {len(checked):,} starts: worst window lacks "
            f"{float(found.fresh.lacks):.2f} fresh, {float(found.retry.lacks):.2f} retries, of one claimer {own:.2f}",
            flush=True,
        )
