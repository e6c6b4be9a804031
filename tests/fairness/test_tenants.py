"""Tenants take turns: while T of them wait in a line (a lane and level of a queue) and F claimers serve it, no tenant waits for more than
F x (T - 1) starts of others between two of its own, nor for more than F x T from the moment its first job waits.

Each claimer has a place of its own in the turns, so this is what each of them keeps by itself, F times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from random import Random

import pytest
from msgspec.structs import replace

from mulligan import Queue
from mulligan.core.contract import Store
from mulligan.core.job import LANES, PRIORITIES, Job, Lane, NewJob, first_row
from mulligan.policy.planner import LanePlanner
from tests.builders import claim, done, grouped, retry

scale = [pytest.mark.scale, pytest.mark.timeout(3_600)]
OTHERS = [f"tenant {number}" for number in range(9)]
FLOOD = "tenant 5 floods"  # stands in the middle of the others
TENANTS = len(OTHERS) + 1
BATCH = 2_000
Line = tuple[Lane, int]


async def fill(store: Store, jobs: Iterable[NewJob], lane: Lane) -> None:
    """Stores jobs, all due now, in one lane."""
    now_us = await store.now_us()
    rows = [first_row(job, now_us) for job in jobs]
    if lane == "retry":
        rows = [replace(row, lane="retry", attempts=1, failures=1) for row in rows]
    for at in range(0, len(rows), BATCH):
        await store.restore(rows[at : at + BATCH])


def flood(jobs: int, *, spread: bool, **fields: int) -> Iterator[NewJob]:
    """What one tenant has waiting: in one group, or in many."""
    for number in range(jobs):
        parts = {"on": f"d{number % 3}", "limited": f"t{number % 2}", "key": f"k{number % 150:03}"} if spread else {}
        yield grouped(fair=FLOOD, **parts, **fields)


class Claimers:
    """Claimers that claim in any order, each with its own planner, and what they started in each line."""

    def __init__(self, store: Store, claimers: int, seed: int = 1) -> None:
        self._store = store
        self._rng = Random(seed)
        self._planners = [LanePlanner([Queue("q", key_concurrency=1_000_000)], Random(number)) for number in range(claimers)]
        self.starts: dict[Line, list[str]] = {}

    async def claim(self, total: int) -> list[Job]:
        """One claim by one of them."""
        planner = self._rng.choice(self._planners)
        asks = planner.asks(total)
        claimed = await claim(self._store, *asks, total=total)
        planner.learn(asks, claimed)
        planner.interleave(claimed.jobs, claimed.held_back)
        for job in claimed.jobs:
            self.starts.setdefault((job.lane, job.priority), []).append(str(job.fair_key))
        return claimed.jobs


def longest_waits(starts: list[str], waiting: Counter[str]) -> dict[str, int]:
    """For each tenant, the most starts of others between two of its own, from the first start on, while it has jobs waiting."""
    waits, since, left = dict.fromkeys(waiting, 0), dict.fromkeys(waiting, 0), Counter(waiting)
    for name in starts:
        left[name] -= 1
        for other in waiting:
            if other != name and left[other] > 0:
                since[other] += 1
                waits[other] = max(waits[other], since[other])
        since[name] = 0
    return waits


@pytest.mark.parametrize(
    "total, claimers, jobs, each, spread",
    [
        pytest.param(1, 1, 2_000, 4, True, id="one by one, many groups"),
        pytest.param(7, 1, 2_000, 15, False, id="one claimer"),
        pytest.param(7, 3, 2_000, 20, True, id="three claimers, many groups"),
        pytest.param(10, 4, 100_000, 500, False, marks=scale, id="a large flood"),
        pytest.param(10, 4, 100_000, 500, True, marks=scale, id="a large flood in many groups"),
    ],
)
async def test_a_flood_delays_nobody(store: Store, total: int, claimers: int, jobs: int, each: int, spread: bool) -> None:
    """Nine tenants have some jobs in both lanes, the tenth has a flood in both, and all it starts fails. The others have their turns."""
    crowd = Claimers(store, claimers)
    for lane in LANES:
        await fill(store, flood(jobs, spread=spread), lane)
        await fill(store, (grouped(fair=name) for name in OTHERS for _ in range(each)), lane)
    left = Counter({(lane, name): each for lane in LANES for name in OTHERS})
    while left.total():
        taken = await crowd.claim(total)
        assert len(taken) == total
        await store.settle([retry(job) if job.fair_key == FLOOD else done(job) for job in taken])
        left -= Counter((job.lane, job.fair_key) for job in taken if job.fair_key != FLOOD)
    for (lane, _), starts in crowd.starts.items():
        waits = longest_waits(starts, Counter({FLOOD: jobs, **dict.fromkeys(OTHERS, each)}))
        print(f"{type(store).__name__}: {lane}, claims of {total} by {claimers}: {len(starts)} starts, longest wait {max(waits.values())}")
        assert max(waits.values()) <= claimers * (TENANTS - 1)


@pytest.mark.parametrize("claimers", [1, 3])
async def test_who_comes_late_is_served_within_a_round(store: Store, claimers: int) -> None:
    """A tenant whose first job comes while the others have plenty starts it within F x T starts."""
    crowd = Claimers(store, claimers)
    await fill(store, flood(1_500, spread=True), "fresh")
    await fill(store, (grouped(fair=name) for name in OTHERS for _ in range(60)), "fresh")
    for number in range(12):
        await crowd.claim(5)
        await store.insert([late := grouped(fair=f"late {number % 4}")])
        started: list[str] = []
        while late.id not in started:
            started += [job.id for job in await crowd.claim(5)]
        assert started.index(late.id) <= claimers * TENANTS


async def test_turns_are_kept_in_every_level(store: Store) -> None:
    """Each lane and level has turns of its own, whatever share of the starts it has; none of its tenants is passed over."""
    each, crowd = 45, Claimers(store, 1)
    for lane in LANES:
        for priority in PRIORITIES:
            await fill(store, flood(300, spread=False, priority=priority), lane)
            await fill(store, (grouped(fair=name, priority=priority) for name in OTHERS for _ in range(each)), lane)
    for _ in range(70):
        assert len(await crowd.claim(6)) == 6
    assert len(crowd.starts) == len(LANES) * len(PRIORITIES)
    for starts in crowd.starts.values():
        waits = longest_waits(starts, Counter({FLOOD: 300, **dict.fromkeys(OTHERS, each)}))
        assert max(waits.values()) <= TENANTS - 1
        counted = Counter(starts)
        assert max(counted.values()) - min(counted[name] for name in (FLOOD, *OTHERS)) <= 1


def test_waits_are_measured() -> None:
    """The measure finds a tenant that is passed over, and asks nothing for one that has nothing."""
    waiting = Counter({"a": 9, "b": 9, "c": 1})
    assert longest_waits(["a", "b", "c", "a", "b", "a", "b"], waiting) == {"a": 2, "b": 2, "c": 2}
    assert longest_waits(["a", "b", "a", "a", "a", "b"], waiting) == {"a": 1, "b": 3, "c": 6}
