"""Limits and groups on PostgreSQL: who waits for whom, and what is kept of buckets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest

from mulligan.core.clock import Clock, ManualClock
from mulligan.core.contract import Ask
from mulligan.core.groups import FAIR
from mulligan.core.job import LANES, Job
from mulligan.core.limits import BUCKET_MEMORY_US, Slots
from mulligan.stores.postgres import PostgresStore
from tests.builders import ask, bucket, claim, crash, done, failed, fifo, get, grip, grouped, release, requeue, retry, us
from tests.postgres.conftest import Raw

LIMITS = (
    Slots(most=30),
    Slots(most=20, lane="retry"),
    Slots(most=2, by_key=True),
    bucket("a", per_s=1_000, burst=500),
    bucket("z", per_s=1_000, burst=500, ratio=0.5, lane="retry"),
    bucket("tenant", per_s=100, burst=100, part=FAIR),
)
STEPS = 40


async def test_nobody_waits_in_a_circle(make: Callable[[Clock | None], PostgresStore], monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims of two queues that share buckets, renewals of leases that have ended, settles, take-overs and cancels of the same jobs, each
    in another order, at the same time: never a deadlock."""
    monkeypatch.setattr("mulligan.stores.postgres.database.CONFLICT_REPEATS", 0)  # so that one would be told,
    monkeypatch.setattr("mulligan.stores.network.store.REPEATS", 0)  # and not repeated
    monkeypatch.setattr("mulligan.stores.postgres.database.IDLE_MAX_MS", 60_000)  # a busy machine may hold up a client of the test
    stores = [make(None) for _ in range(3)]
    for store in stores:
        await store.open()
    await stores[0].insert([grouped(queue, fair=f"t{number % 9}", key=f"k{number % 30}") for number in range(200) for queue in "qr"])
    held: list[Job] = []  # by anybody; whoever settles one that another has settled is refused

    async def work(store: PostgresStore, seed: int) -> None:
        rng = Random(seed)
        for _ in range(STEPS):
            lots = rng.sample(held, min(len(held), 12))
            match rng.randrange(6):
                case 0 | 1:
                    asks = [ask(queue, lane, guaranteed=2, limits=rng.sample(LIMITS, len(LIMITS))) for queue in "qr" for lane in LANES]
                    held.extend((await claim(store, *rng.sample(asks, 4), total=8, lease_s=rng.choice([0, 0.01, 60]))).jobs)
                case 2:
                    await store.renew([grip(job) for job in lots], us(rng.choice([0, 30])))
                case 3:
                    await store.settle([rng.choice([done, retry, release, failed])(job) for job in lots])
                case 4:
                    await store.settle([crash(job) for job in await store.overdue(10)])
                case 5:
                    await store.request_cancel([job.id for job in lots[:2]])

    try:
        async with asyncio.TaskGroup() as tasks:
            for seed in range(6):
                tasks.create_task(work(stores[seed % 3], seed))
    finally:
        for store in stores:
            await store.close()
    assert len(held) > 50


async def test_buckets_are_forgotten_after_a_day(store: PostgresStore, raw: Raw, clock: ManualClock) -> None:
    """Those of tenants that have not come again are removed now and then, a thousand at a time; those in use stay."""
    limit = bucket("tenant", burst=5, part=FAIR)
    await store.insert([grouped(fair=f"t{number:04}") for number in range(1_200)])
    while (await claim(store, ask(limits=(limit,)), total=400)).jobs:
        pass
    assert len(await store.levels()) == 1_200
    clock.advance(BUCKET_MEMORY_US / 1_000_000 + 1)
    await store.insert([grouped(fair="t0007")])
    await claim(store, ask(limits=(limit,)))
    counts = [len(await store.levels())]
    for _ in range(2):
        raw.run("SELECT {s}.forget_buckets(%s)", (clock.now_us() - BUCKET_MEMORY_US,))
        counts.append(len(await store.levels()))
    assert all(before - after <= 1_000 for before, after in pairwise(counts))
    assert list(await store.levels()) == ["tenant/t0007"]


async def test_a_requeued_job_waits_in_its_group_again(store: PostgresStore, raw: Raw) -> None:
    """With nothing left of the slots it was once claimed under."""
    await store.insert([job := grouped(fair="a", key="k")])
    await store.settle([failed(one) for one in (await claim(store, ask(limits=LIMITS))).jobs])
    await store.settle([requeue(await get(store, job.id))])
    assert raw.rows("SELECT slots, ready, job_group IS NOT NULL FROM {s}.jobs") == [(None, False, True)]
    assert len((await claim(store, ask(lane="retry", limits=LIMITS))).jobs) == 1


@pytest.mark.parametrize("others", [3, 80], ids=["few jobs", "many groups"])
@pytest.mark.parametrize("wanted", [ask(), fifo()], ids=["by time", "by age"])
async def test_a_damaged_group_is_put_aside(store: PostgresStore, raw: Raw, others: int, wanted: Ask) -> None:
    """A text that is no group does not stop the claims of the others, whether it is met among few jobs or on the way round many."""
    jobs = [grouped(fair=f"t{number:03}") for number in range(others)]
    await store.insert([*jobs, bad := grouped(fair="t000x"), worse := grouped(fair="t000y")])
    raw.run("UPDATE {s}.jobs SET job_group = 'no group' WHERE id = %s", (bad.id,))
    raw.run("UPDATE {s}.jobs SET job_group = chr(1114111) || chr(31) WHERE id = %s", (worse.id,))
    taken: list[str] = []
    while claimed := (await claim(store, wanted, total=2)).jobs:
        taken += [job.id for job in claimed]
    assert sorted(taken) == sorted(job.id for job in jobs)
    assert [(await get(store, one.id)).status for one in (bad, worse)] == ["failed", "failed"]
