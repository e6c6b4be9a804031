"""What a call costs does not grow with what lies around; and where it does, that is known, and it grows no more than the jobs do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from benchmarks.growth.calls import CALLS, LOOKS, WORK, Scene
from benchmarks.growth.kinds import KINDS, fill

from mulligan.core.contract import Store
from tests.builders import ask, claim, release
from tests.conftest import BACKENDS, DURABLE
from tests.flat.meters import Meter, meter_of

FEW, MANY = 600, 3_000  # of each kind; the first glance of a look at jobs goes over 2,000, which is less than half of the small store
FLAT = 1.5
SPARE = 10  # a call that looks at nothing has to be allowed some noise of the server
PARTS = {
    "work": list(WORK),
    "first pages": [name for name in LOOKS if not name.startswith("search") and not name.endswith("deep")],
    "deep pages and searches": [name for name in LOOKS if name.startswith("search") or name.endswith("deep")],
}
SQL_AND_MONGO = {"sqlite", "postgres", "mongo"}
EVERY = {"memory", "redis", *SQL_AND_MONGO}
# Where a call goes through all jobs of a status, or of the store, and why. A line that is no longer true fails the test.
# (Redis is measured by its commands: that one of them brings many rows is not seen. docs/guide/growth.md tells what that takes.)
GROWS: dict[str, set[str]] = {
    # What waits and what runs is counted along its index; on MongoDB what rests is, too.
    "stats": {"memory", *SQL_AND_MONGO},
    # There are never more of these than all workers together have slots, so they have no index in the order of ids.
    "find processing": SQL_AND_MONGO,
    "find processing, deep": SQL_AND_MONGO,
    # MongoDB has them by the time they ended, and sorts what it finds.
    **{f"find {name}{deep}": {"mongo"} for name in ("failed", "cancelled", "failed of a queue") for deep in ("", ", deep")},
    # No index tells what is looked for from the rest.
    **{name: EVERY for name in LOOKS if name.startswith("search")},
}
# On Redis a command brings thousands of running jobs at once; of a million, one sees that there are many.
GROWS_BESIDE_MILLIONS = {**GROWS, "stats": EVERY}


@pytest.fixture(scope="module", params=list(BACKENDS))
def backend(request: pytest.FixtureRequest) -> str:
    """The name of the store under test."""
    return str(request.param)


@pytest.fixture(scope="module")
def meter(backend: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Meter]:
    """A meter for each store."""
    with meter_of(backend, tmp_path_factory.mktemp("flat")) as meter:
        yield meter


@asynccontextmanager
async def filled(meter: Meter, *sizes: int) -> AsyncIterator[list[tuple[Store, Scene]]]:
    """A store for each size: so many jobs of each kind, but equally many that are due; test_claim_cost.py has many of these."""
    made: list[tuple[Store, Scene]] = []
    try:
        for size in sizes:
            store = meter.make()
            await store.open()
            made.append((store, Scene(await fill(store, {kind: min(sizes) if kind == "ready" else size for kind in KINDS}))))
            await made[-1][1].prepare(store)
            # The memory store sorts what has fallen due when it is first asked.
            await store.settle([release(job) for job in (await claim(store, ask(), total=1)).jobs])
        yield made
    finally:
        for store, _ in made:
            await store.close()


async def compared(
    meter: Meter, backend: str, calls: Iterable[str], few: int, many: int, known: Mapping[str, set[str]] = GROWS
) -> list[str]:
    """Measures calls on a small and a large store; what is not as it should be."""
    wrong = []
    async with filled(meter, few, many) as stores:
        for name in calls:
            costs = [await meter.cost(store, lambda one, scene=scene: CALLS[name](one, scene)) for store, scene in stores]  # type: ignore[misc]  # noqa: B023
            print(f"{backend}: {name}: {costs[0]} and {costs[1]} {meter.unit} at {few} and {many} jobs of each kind")
            most = FLAT * costs[0] + SPARE
            if backend not in known.get(name, ()):
                wrong += [f"{name} grows: {costs[0]} and {costs[1]}"] if costs[1] > most else []
            elif costs[1] <= most:
                wrong.append(f"{name} does not grow any more: {costs[0]} and {costs[1]}")
            elif costs[1] > FLAT * costs[0] * many / few:
                wrong.append(f"{name} grows more than the jobs: {costs[0]} and {costs[1]}")
    return wrong


@pytest.mark.parametrize("part", list(PARTS))
async def test_calls_cost_the_same_whatever_lies_around(meter: Meter, backend: str, part: str) -> None:
    """Beside five times as many jobs of every status a call looks at as much, but for those that are known to go through them."""
    assert await compared(meter, backend, PARTS[part], FEW, MANY) == []


@pytest.mark.scale
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("durable", [name for name in BACKENDS if name in DURABLE])
async def test_calls_cost_the_same_beside_millions(durable: str, tmp_path: Path) -> None:
    """From a thousand to a million jobs of every status, what does not grow beside few does not grow beside many. (What does may take
    longer then than a store gives a call; benchmarks.growth tells.)"""
    flat = [name for name in CALLS if durable not in GROWS_BESIDE_MILLIONS.get(name, ())]
    with meter_of(durable, tmp_path) as meter:
        assert await compared(meter, durable, flat, 1_000, 1_000_000) == []


async def test_growth_is_seen(tmp_path: Path) -> None:
    """The comparison can fail: at a call that goes through all jobs and is not known to, and at one that is known to and does not."""
    with meter_of("memory", tmp_path) as meter:
        assert await compared(meter, "memory", ["get", "stats"], 50, 500) == []
        [grows] = await compared(meter, "memory", ["get", "stats"], 50, 500, {})
        assert grows.startswith("stats grows")
        [does_not] = await compared(meter, "memory", ["get"], 50, 500, {"get": {"memory"}})
        assert "any more" in does_not
