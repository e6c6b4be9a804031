"""The cost of a claim does not grow with the number of tenants that wait, nor with what one of them has waiting, held back or not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator

import pytest
from msgspec.structs import replace

from mulligan.core.contract import Ask, Claimed, Store
from mulligan.core.groups import DOWNSTREAM, FAIR
from mulligan.core.job import LANES, Job, Lane, NewJob, first_row
from mulligan.core.limits import Limit, Slots
from mulligan.core.ring import VISITS_MAX
from tests.builders import ask, bucket, claim, grouped
from tests.conftest import BACKENDS
from tests.flat.meters import Meter, Work, meter_of

scale = [pytest.mark.scale, pytest.mark.timeout(3_600)]
BATCH = 2_000
CLAIMS = {1: 8, 10: 4, 100: 1}  # how many claims of each size are measured
KEPT: tuple[Limit, ...] = (Slots(most=1, by_key=True), bucket("tenant", per_s=100, burst=1_000, lane="retry", part=FAIR))
SHUT = bucket("shut", burst=0, part=DOWNSTREAM, value="dead")
FLAT = 1.5  # a claim among many may cost so many times what it costs among few
FREE = 10


@pytest.fixture(scope="module", params=list(BACKENDS))
def meter(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Meter]:
    """A meter for each store."""
    with meter_of(request.param, tmp_path_factory.mktemp("flat")) as meter:
        yield meter


@pytest.fixture
async def stores(meter: Meter) -> AsyncIterator[list[Store]]:
    """Two empty stores."""
    made = [meter.make(), meter.make()]
    for store in made:
        await store.open()
    yield made
    for store in made:
        await store.close()


async def fill(store: Store, jobs: Iterable[NewJob], lanes: tuple[Lane, ...] = LANES) -> None:
    """Stores each job in both lanes."""
    now_us = await store.now_us()
    batch: list[Job] = []
    for job in jobs:
        row = first_row(job, now_us)
        for lane in lanes:
            retries = int(lane == "retry")
            batch.append(replace(row, id=f"{row.id[:-1]}{retries}", lane=lane, attempts=retries, failures=retries))
        if len(batch) >= BATCH:
            await store.restore(batch)
            batch = []
    await store.restore(batch)


def asks(total: int, afters: tuple[str, ...], limits: tuple[Limit, ...] = KEPT) -> list[Ask]:
    """Both lanes and all priorities, as a worker asks."""
    places = [(lane, priority) for lane in LANES for priority in (2, 1, 0)]
    return [
        ask("q", lane, priority=priority, guaranteed=-(-total // 2) if priority == 0 else 0, limits=limits, after=after)
        for (lane, priority), after in zip(places, afters or ("",) * len(places), strict=True)
    ]


class Claimer:
    """Claims, each beginning where the last one ended."""

    def __init__(self, limits: tuple[Limit, ...] = KEPT) -> None:
        self._limits = limits
        self._afters: tuple[str, ...] = ()

    async def claim(self, store: Store, total: int) -> Claimed:
        claimed = await claim(store, *asks(total, self._afters, self._limits), total=total)
        self._afters = claimed.turns or self._afters
        return claimed


def full_claims(total: int) -> Work:
    """Some claims of one size, all of them full."""

    async def work(store: Store) -> None:
        claimer = Claimer()
        for _ in range(CLAIMS[total]):
            assert len((await claimer.claim(store, total)).jobs) == total

    return work


async def compare(meter: Meter, stores: list[Store], told: str) -> None:
    """Claims of 1, 10 and 100 cost about the same on the second store as on the first."""
    for store in stores:
        await Claimer().claim(store, 1)  # the memory store sorts what has fallen due when it is first asked
    for total, claims in CLAIMS.items():
        few, many = [await meter.cost(store, full_claims(total)) / claims for store in stores]
        print(f"{type(stores[0]).__name__}: claim of {total}: {few:.0f} and {many:.0f} {meter.unit} {told}")
        assert 0 < many <= FLAT * few


def of_tenants(tenants: int, each: int, **fields: object) -> Iterator[NewJob]:
    """So many tenants with so many jobs each."""
    return (grouped(fair=f"t{number:05}", **fields) for number in range(tenants) for _ in range(each))


@pytest.mark.parametrize("few, many", [(100, 1_000), pytest.param(100, 10_000, marks=scale)])
async def test_the_number_of_tenants_does_not_matter(meter: Meter, stores: list[Store], few: int, many: int) -> None:
    """Each of them has a few jobs in both lanes."""
    for store, tenants in zip(stores, (few, many), strict=True):
        await fill(store, of_tenants(tenants, 3))
    await compare(meter, stores, f"at {few} and {many} tenants")


@pytest.mark.parametrize("flood", [2_000, pytest.param(100_000, marks=scale)])
async def test_what_one_tenant_has_waiting_does_not_matter(meter: Meter, stores: list[Store], flood: int) -> None:
    """Nine others have a few jobs each; the tenth has as many, or a flood."""
    for store, jobs in zip(stores, (30, flood), strict=True):
        await fill(store, of_tenants(9, 30))
        await fill(store, (grouped(fair="flood") for _ in range(jobs)))
    await compare(meter, stores, f"beside 30 and {flood} jobs of one tenant")


@pytest.mark.parametrize("few, many", [(600, 2_000), pytest.param(1_000, 10_000, marks=scale)])
async def test_what_waits_for_the_future_does_not_matter(meter: Meter, stores: list[Store], few: int, many: int) -> None:
    """So many tenants have nothing but jobs that are not due, and ten have some that are."""
    for store, tenants in zip(stores, (few, many), strict=True):
        await fill(store, of_tenants(tenants, 1, delay_s=3_600))
        await fill(store, (grouped(fair=f"x{number}") for number in range(FREE) for _ in range(30)))
    await compare(meter, stores, f"beside {few} and {many} tenants that wait for later")


@pytest.mark.parametrize("few, many", [(1_100, 2_100), pytest.param(2_000, 9_990, marks=scale)])
async def test_most_tenants_are_held_back(meter: Meter, stores: list[Store], few: int, many: int) -> None:
    """Their downstream is shut. A claim that finds nobody else visits VISITS_MAX of them and no more; so the ten that are free are all
    served within a known number of claims, and the cost of each of these is the same among many as among few."""
    costs = []
    for store, tenants in zip(stores, (few, many), strict=True):
        # Everywhere among the others, and before them: those that come anew are found at once (test_many_groups.py).
        await fill(store, (grouped(fair=f"t{tenants * (number + 1) // (FREE + 1):05}+") for number in range(FREE)), ("fresh",))
        await fill(store, of_tenants(tenants, 1, on="dead"), ("fresh",))
        claims = 0

        async def work(store: Store) -> None:
            nonlocal claims
            claimer, served = Claimer((*KEPT, SHUT)), 0
            while served < FREE:
                claimed = await claimer.claim(store, 10)
                served, claims = served + len(claimed.jobs), claims + 1
                assert claimed.held_back == {"q"}
                assert claims <= tenants // VISITS_MAX + 1 + FREE  # noqa: B023 - it is called at once

        cost = await meter.cost(store, work)
        print(f"{type(store).__name__}: {claims} claims of 10 serve the {FREE} among {tenants}, {cost / claims:.0f} {meter.unit} each")
        costs.append(cost / claims)
    assert costs[1] <= FLAT * costs[0]
