"""The cost of a claim does not grow with what waits for the future, is done, or waits behind."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from mulligan.core.change import Change
from mulligan.core.clock import SECOND_US
from mulligan.core.contract import Ask, Store
from mulligan.core.ids import new_id
from mulligan.core.job import LANES, Job, first_row
from mulligan.stores import open_store
from tests.builders import ask, claim, new_job, release
from tests.conftest import BACKENDS
from tests.flat.examined import at_rest, examined
from tests.outages.conftest import SERVERS
from tests.outages.drain import place
from tests.servers import Server

scale = [pytest.mark.scale, pytest.mark.timeout(3_600)]
CLAIM = 100
ROUNDS = 41
BATCH = 2_000


@pytest.fixture(scope="module", params=[name for name in SERVERS if name in BACKENDS])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server that nobody else uses, so that its counters are ours."""
    with SERVERS[request.param]() as server:
        yield server


async def fill(store: Store, many: int) -> None:
    """So many future retries, done jobs and fresh ones."""
    now_us = await store.now_us()
    day_us = 86_400 * SECOND_US

    def kinds(number: int) -> list[Job]:
        row = first_row(new_job(id=new_id(now_us)), now_us - many + number)
        retry = replace(row, id=new_id(now_us), lane="retry", attempts=1, failures=1, run_at_us=now_us + day_us + number)
        done = replace(row, id=new_id(now_us), status="done", run_at_us=None, finished_at_us=now_us, attempts=1, fence=1)
        return [row, retry, done]

    batch: list[Job] = []
    for number in range(many):
        batch += kinds(number)
        if len(batch) >= BATCH or number == many - 1:
            await store.restore(batch)
            batch = []


async def timed_claim(store: Store) -> float:
    """The seconds of one claim of a hundred; the jobs are given back afterwards, so that the next claim finds as many."""
    began = time.perf_counter()
    taken = (await claim(store, *asks(), total=CLAIM)).jobs
    took = time.perf_counter() - began
    assert len(taken) == CLAIM
    await store.settle(given_back(taken))
    return took


def asks() -> list[Ask]:
    """Both lanes, all priorities, as a worker asks."""
    return [ask("q", lane, priority=priority, guaranteed=17) for lane in LANES for priority in (2, 1, 0)]


def given_back(jobs: list[Job]) -> list[Change]:
    """The jobs as if they had not been claimed."""
    return [release(job) for job in jobs]


@pytest.mark.parametrize("few, many", [(300, 5_000), pytest.param(1_000, 1_000_000, marks=scale)])
async def test_a_claim_costs_the_same_whatever_lies_around(server: Server, few: int, many: int) -> None:
    """Claims of 100 in turn on a small and a large store: at most twice the time (medians of one run), a few hundred rows examined."""
    urls = [place(server.url), place(server.url)]
    stores = [open_store(url) for url in urls]
    began = time.perf_counter()
    for store, size in zip(stores, (few, many), strict=True):
        await store.open()
        await fill(store, size)
        await store.close()
    filled_s = time.perf_counter() - began
    await at_rest(server)
    per_claim = await rows_per_claim(server, urls[1])
    for store in stores:
        await store.open()
    times: list[list[float]] = [[], []]
    for _ in range(ROUNDS):
        for place_in_turn, store in enumerate(stores):
            times[place_in_turn].append(await timed_claim(store))
    for store in stores:
        await store.close()
    small, large = (statistics.median(part) for part in times)
    print(
        f"{server.kind}: claim of {CLAIM}: {small * 1e3:.2f} ms at {few} of each, {large * 1e3:.2f} ms at {many} of each "
        f"({large / small:.2f}x), {per_claim} examined; filled in {filled_s:.0f} s"
    )
    assert large <= 2 * small
    assert 0 < per_claim <= 6 * CLAIM


async def rows_per_claim(server: Server, url: str) -> int:
    """What the server looks at for one claim, from its counters over ten; what opening and closing cost is taken off."""
    counts = []
    for claims in (0, 10):
        before = examined(server)
        store = open_store(url)
        await store.open()
        for _ in range(claims):
            assert len((await claim(store, *asks(), total=CLAIM)).jobs) == CLAIM
        await store.close()
        counts.append(examined(server) - before)
    return (counts[1] - counts[0]) // 10
