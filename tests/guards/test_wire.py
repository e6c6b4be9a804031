"""What a call costs on the wire: round trips that do not grow with the batch, and few bytes for each job."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

import pytest

from mulligan.core.contract import Near, Store
from mulligan.core.job import LANES, Job
from mulligan.stores import open_store
from mulligan.stores.network.inserts import OFTEN
from tests.builders import LEASE_S, ask, done, fresh_id, new_job, retry, us
from tests.conftest import BACKENDS, url_of
from tests.guards.counted_wire import CountedWire
from tests.guards.scene import JOBS, Scene

T = TypeVar("T")


class Cost(NamedTuple):
    """Round trips of one call at most, for 500 jobs as for 50; the bytes of one job at most, as measured and a seventh more."""

    insert: int  # the hint to sleeping workers included
    claim: int
    settle: int  # of successes
    retries: int  # of failures that run again: each leaves a record, and two events in the log
    insert_bytes: int  # to the server
    claim_bytes: int  # from the server
    settle_bytes: int  # to the server


COSTS = {
    # A batch is one statement, whatever has become of its jobs; where some wait again, there is a hint.
    "postgres": Cost(insert=2, claim=1, settle=1, retries=2, insert_bytes=70, claim_bytes=381, settle_bytes=85),
    "redis": Cost(insert=2, claim=1, settle=1, retries=2, insert_bytes=155, claim_bytes=250, settle_bytes=115),
    # A claim looks, remembers, reads and takes; the log of events closes a document and begins another.
    "mongo": Cost(insert=3, claim=4, settle=2, retries=10, insert_bytes=500, claim_bytes=570, settle_bytes=190),
}
START_MAX = 60  # trips that may come on top of the claims and settles of a drain: the loops beside them, once in a second


@pytest.fixture(params=[name for name in COSTS if name in BACKENDS])
def networked(request: pytest.FixtureRequest) -> str:
    """The name of a store behind a network."""
    return str(request.param)


@pytest.fixture
def url(networked: str, tmp_path: Path) -> str:
    return url_of(networked, tmp_path)


@pytest.fixture
def wire(url: str) -> Iterator[CountedWire]:
    with CountedWire(url) as wire:
        yield wire


@pytest.fixture
async def store(url: str, wire: CountedWire) -> AsyncIterator[Store]:
    """A store behind the wire, on the server's own clock, as in production."""
    store = open_store(wire.url_of(url))
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def near(store: Store) -> AsyncIterator[Near]:
    """The side of the store that a worker uses."""
    near = await store.near()
    yield store if near is None else near
    if near is not None:
        await near.close()


class Trips(NamedTuple):
    trips: int
    sent: int
    got: int


async def measured(wire: CountedWire, call: Callable[[], Awaitable[T]]) -> tuple[T, Trips]:
    """The answer of a call, and what it cost. A hint may go out a moment later; it is waited for."""
    wire.reset()
    answer = await call()
    seen = -1
    while seen != wire.trips:
        seen = wire.trips
        await asyncio.sleep(0.02)
    return answer, Trips(wire.trips, wire.bytes_sent, wire.bytes_got)


async def claimed(wire: CountedWire, near: Near, jobs: int) -> tuple[list[Job], Trips]:
    """So many jobs, asked for as a worker does, and what that cost."""
    asks = [ask("q", lane, priority=priority, guaranteed=-(-jobs // 6)) for lane in LANES for priority in (2, 1, 0)]
    found, cost = await measured(wire, lambda: near.claim(fresh_id(), "worker", asks, jobs, us(LEASE_S)))
    assert len(found.jobs) == jobs
    return found.jobs, cost


@pytest.mark.parametrize("size", [50, 500])
async def test_a_batch_takes_a_fixed_number_of_trips(networked: str, wire: CountedWire, store: Store, near: Near, size: int) -> None:
    """An insert, a claim and a settle of 500 jobs take as few round trips as those of 50, and no more bytes for each job: what like jobs
    share goes to a server once."""
    most = COSTS[networked]
    for _ in range(2):  # the first time statements are prepared and scripts are loaded
        _, insert = await measured(wire, lambda: store.insert([new_job() for _ in range(size)]))
        jobs, claim = await claimed(wire, near, size)
        _, settle = await measured(wire, lambda jobs=jobs: near.settle([done(job) for job in jobs]))  # type: ignore[misc]
    print(f"{networked}, {size} jobs: insert {insert}, claim {claim}, settle {settle}")
    assert insert.trips <= most.insert
    assert claim.trips <= most.claim
    assert settle.trips <= most.settle
    assert insert.sent <= most.insert_bytes * size
    assert claim.got <= most.claim_bytes * size
    assert settle.sent <= most.settle_bytes * size


@pytest.mark.parametrize("size", [50, 500])
async def test_a_batch_of_failures_takes_a_bounded_number_of_trips(
    networked: str, wire: CountedWire, store: Store, near: Near, size: int
) -> None:
    """Failures of many jobs are written together as well: never a round trip for each."""
    for _ in range(3):  # each of the two connections of a pool prepares its own statements
        await store.insert([new_job() for _ in range(size)])
        jobs, _ = await claimed(wire, near, size)
        verdicts, cost = await measured(wire, lambda jobs=jobs: near.settle([retry(job, delay_s=3_600) for job in jobs]))  # type: ignore[misc]
        assert all(verdict.applied for verdict in verdicts)
    print(f"{networked}, {size} failures: {cost}")
    assert cost.trips <= COSTS[networked].retries


async def test_a_blocking_insert_is_one_trip(wire: CountedWire, store: Store) -> None:
    """A single insert of a thread that blocks goes to the server once, and a hint after it, on the stores that have one."""
    insert_now = getattr(store, "insert_now", None)
    if insert_now is None:
        return
    for _ in range(2):  # the first one connects, and tells the server the script
        await measured(wire, lambda: asyncio.to_thread(insert_now, [new_job()]))
    [answer], cost = await measured(wire, lambda: asyncio.to_thread(insert_now, [new_job()]))
    assert answer.created
    assert cost.trips <= 2


async def test_single_enqueues_at_the_same_time_go_together(networked: str, wire: CountedWire, store: Store) -> None:
    """A hundred tasks that enqueue one job each: the first goes alone, the others gather meanwhile and go as one."""

    async def enqueue() -> None:
        await store.insert([new_job()])

    async def all_together() -> None:
        await asyncio.gather(*(enqueue() for _ in range(100)))

    for _ in range(OFTEN):  # each connection has to prepare its statements, and the last one that is made is this loop's own
        await all_together()
    _, cost = await measured(wire, all_together)
    print(f"{networked}, a hundred single inserts: {cost}")
    assert cost.trips <= 5 * COSTS[networked].insert  # two inserts, and hints


async def test_a_whole_drain_takes_no_more_than_its_batches(networked: str, wire: CountedWire, url: str) -> None:
    """Of a worker that drains 2,000 jobs, the wire sees what its claims and settles cost, and nothing for each job."""
    most = COSTS[networked]
    async with Scene(wire.url_of(url)) as scene:
        await scene.fill(1)
        wire.reset()
        await scene.drain()  # what coming, preparing statements and going cost
        alone = wire.trips
        await scene.fill()
        scene.calls.reset()
        wire.reset()
        await scene.drain()
        trips, calls = wire.trips, scene.calls
    claims, settles = len(calls.claimed), len(calls.settled)
    print(f"{networked}: {trips} trips for {JOBS} jobs in {claims} claims and {settles} settles, {alone} for one job")
    assert sum(calls.settled) == JOBS
    assert trips <= alone + claims * most.claim + settles * most.settle + START_MAX
