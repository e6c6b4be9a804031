"""Limits and groups while several stores, as of several processes, claim, renew and settle at the same time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable

import pytest

from mulligan.core.clock import Clock, ManualClock
from mulligan.core.contract import Ask, Store
from mulligan.core.groups import FAIR, behind
from mulligan.core.job import LANES, Lane
from mulligan.core.limits import TOKEN, Limit, Slots
from tests.builders import ask, bucket, claim, done, grip, grouped, new_job, release, retry, us
from tests.conftest import BACKENDS, DURABLE

STORES = 3
LATE: dict[str, tuple[Limit, Lane]] = {
    "queue": (Slots(most=1), "fresh"),
    "lane": (Slots(most=1, lane="retry"), "retry"),
    "key": (Slots(most=1, by_key=True), "fresh"),
    "key in a lane": (Slots(most=1, lane="retry", by_key=True), "retry"),
}


@pytest.fixture(params=[name for name in BACKENDS if name in DURABLE])
def backend(request: pytest.FixtureRequest) -> str:
    """Stores whose rows others can open."""
    return str(request.param)


@pytest.fixture
async def stores(store_maker: Callable[[Clock | None], Store], clock: ManualClock) -> AsyncIterator[list[Store]]:
    """Some stores on the same rows and the same clock."""
    made = [store_maker(clock) for _ in range(STORES)]
    for store in made:
        await store.open()
    yield made
    for store in made:
        await store.close()


def asks(*limits: Limit) -> list[Ask]:
    """Both lanes of two queues."""
    return [ask(queue, lane, guaranteed=1, limits=limits) for queue in ("q", "r") for lane in LANES]


async def test_slots_keys_and_tokens_hold_together(stores: list[Store]) -> None:
    """However they race: never more running than slots, never two of one key, exactly as many starts as tokens, tenants' tokens too."""
    limits = (Slots(most=3), Slots(most=1, by_key=True), bucket("all", burst=40), bucket("tenant", burst=12, part=FAIR))
    jobs = [grouped(queue, fair=f"t{number % 4}", key=f"k{number % 5}") for number in range(60) for queue in ("q", "r")]
    await stores[0].insert([*jobs, *(new_job(queue) for queue in ("q", "r") for _ in range(5))])
    running: Counter[str] = Counter()
    keys: Counter[tuple[str, str]] = Counter()
    started: Counter[str] = Counter()

    async def work(store: Store, turned: bool) -> None:
        vain = 0
        while vain < 4:
            wanted = asks(*limits)
            claimed = await claim(store, *(reversed(wanted) if turned else wanted), total=2)
            vain = 0 if claimed.jobs else vain + 1
            for job in claimed.jobs:
                running[job.queue] += 1
                started[job.fair_key or ""] += 1
                if job.concurrency_key:
                    keys[job.queue, job.concurrency_key] += 1
            assert max(running.values(), default=0) <= 3
            assert max(keys.values(), default=0) <= 1
            await store.renew([grip(job) for job in claimed.jobs], us(60))
            running.subtract(job.queue for job in claimed.jobs)
            keys.subtract((job.queue, job.concurrency_key) for job in claimed.jobs if job.concurrency_key)
            ends = [(done, retry, release)[number % 3](job) for number, job in enumerate(claimed.jobs)]
            assert all(verdict.applied for verdict in await store.settle(ends))

    await asyncio.gather(*(work(store, bool(number % 2)) for number, store in enumerate([*stores, *stores])))
    levels = await stores[0].levels()
    assert started.total() == 40
    assert levels["all"].level_u == 0
    assert {key: level.level_u for key, level in levels.items() if key != "all"} == {
        f"tenant/{name}": (12 - starts) * TOKEN for name, starts in started.items() if name
    }


@pytest.mark.parametrize("limits", [(), (Slots(most=50, by_key=True), bucket("all", burst=100))], ids=["no limits", "limits"])
async def test_one_claim_made_twice_at_once_takes_and_pays_once(stores: list[Store], limits: tuple[Limit, ...]) -> None:
    """A repeat that overtakes the first call finds what that one takes, or makes it wait; jobs and tokens go once."""
    await stores[0].insert([grouped(fair=f"t{number % 7}", key="k") for number in range(60)])
    for number in range(6):
        answers = await asyncio.gather(*(claim(store, ask(limits=limits), total=5, claim_id=f"c-{number}") for store in stores))
        taken = {job.id for answer in answers for job in answer.jobs}
        assert len(taken) == 5
        assert all({job.id for job in answer.jobs} == taken for answer in answers)
        assert [level.level_u for level in (await stores[0].levels()).values()] == [(95 - 5 * number) * TOKEN] * bool(limits)
        await stores[0].settle([done(job) for job in answers[0].jobs])


@pytest.mark.parametrize("name", ["queue", "lane", "key", "key in a lane"])
async def test_claims_of_different_jobs_share_the_slots(stores: list[Store], name: str) -> None:
    """Claims at the same moment that begin with different tenants have nothing in common but the slots, and keep them."""
    limit, lane = LATE[name]
    await stores[0].insert([grouped(fair=f"t{number % STORES}", key="k") for number in range(60)])
    if lane == "retry":
        await stores[0].settle([retry(job) for job in (await claim(stores[0], ask())).jobs])
    for _ in range(8):
        wanted = [ask(lane=lane, limits=(limit,), after=behind(f"t{number}")) for number in range(STORES)]
        answers = await asyncio.gather(*(claim(store, one, total=1) for store, one in zip(stores, wanted, strict=True)))
        [job] = [job for answer in answers for job in answer.jobs]
        await stores[0].settle([done(job)])


@pytest.mark.parametrize("name", LATE)
async def test_a_late_renewal_and_a_claim_never_both_win(stores: list[Store], clock: ManualClock, name: str) -> None:
    """When a lease has ended, its slot is for the one that comes first: the renewal or the next job, of whatever kind of slots."""
    limit, lane = LATE[name]
    wanted = ask(lane=lane, limits=(limit,))
    await stores[0].insert([grouped(key="k") for _ in range(40)])
    if lane == "retry":
        await stores[0].settle([retry(job) for job in (await claim(stores[0], ask())).jobs])
    [job] = (await claim(stores[0], wanted, total=1, lease_s=5)).jobs
    for number in range(12):
        clock.advance(5)
        first, second = stores[number % STORES], stores[(number + 1) % STORES]
        [renewal], claimed = await asyncio.gather(first.renew([grip(job)], us(5)), claim(second, wanted, total=1, lease_s=5))
        assert renewal.held != bool(claimed.jobs)
        if claimed.jobs:
            [late] = await first.renew([grip(job)], us(5))
            assert not late.held
            [job] = claimed.jobs
