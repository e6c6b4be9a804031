"""Whole lives of jobs with groups, through every way out of a line and back into it. For tests of what is left behind."""

from __future__ import annotations

from msgspec.structs import replace

from mulligan.core.clock import ManualClock
from mulligan.core.contract import Query, Store
from mulligan.core.groups import FAIR
from mulligan.core.limits import Limit, Slots
from tests.builders import ask, bucket, claim, crash, done, failed, get, grip, grouped, release, requeue, retry, snooze, us

LIMITS: tuple[Limit, ...] = (Slots(most=100_000), Slots(most=5, by_key=True), bucket("tenant", per_s=100, burst=100, part=FAIR))
BATCH = 1_000


async def live_through(store: Store, clock: ManualClock, tenants: int) -> None:
    """Jobs of so many tenants are cancelled, run, fail, come back, lapse, are requeued and done. All have come to rest at the end."""
    for at in range(0, tenants, BATCH):
        names = [f"t{number:05}" for number in range(at, min(at + BATCH, tenants))]
        await store.insert([grouped(fair=name, on="d", key=f"key of {name}") for name in names])
        await store.insert([grouped(fair=name, limited="work", priority=2) for name in names])
        later = [grouped(fair=name, delay_s=60) for name in names]
        await store.insert(later)
        assert await store.request_cancel([job.id for job in later]) == ["cancelled"] * len(later)
    await _run(store, clock)
    lost = (await store.find(Query(status="failed"), 500)).jobs
    await store.settle([requeue(await get(store, job.id)) for job in lost])
    await _run(store, clock)


async def _run(store: Store, clock: ManualClock) -> None:
    """Claims until nothing waits any more; the first time each job goes another way."""
    asks = [ask(lane=lane, priority=priority, limits=LIMITS) for lane in ("fresh", "retry") for priority in (2, 0)]
    afters = [""] * len(asks)
    while True:
        wanted = [replace(one, after=after) for one, after in zip(asks, afters, strict=True)]
        claimed = await claim(store, *wanted, total=BATCH, lease_s=10)
        afters = list(claimed.turns) or afters
        if not claimed.jobs:
            if claimed.next_due_us is None:
                return
            continue
        first = [job for job in claimed.jobs if job.fence == 1]
        ends = {0: done, 1: retry, 2: release, 3: snooze, 4: failed}
        changes = [ends[number % 7](job) for number, job in enumerate(first) if number % 7 in ends]
        stopping = first[5::7]
        await store.request_cancel([job.id for job in stopping])
        changes += [retry(job) for job in stopping]  # which ends as cancelled
        changes += [done(job) for job in claimed.jobs if job.fence > 1]
        assert all(verdict.applied for verdict in await store.settle(changes))
        if lapsed := first[6::7]:
            clock.advance(11)
            late, gone = lapsed[::2], lapsed[1::2]
            await store.renew([grip(job) for job in late], us(10))
            await store.settle([crash(job) for job in gone] + [retry(job) for job in late])


async def remove_all(store: Store, clock: ManualClock) -> int:
    """Prunes everything; how many jobs that were."""
    clock.advance(1)
    pruned = 0
    for status in ("done", "failed", "cancelled"):
        while some := await store.prune(status, 0, BATCH):
            pruned += some
    return pruned
