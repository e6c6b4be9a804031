"""Replies lost in the middle of a claim that keeps limits: whichever of its steps it was, jobs and tokens go once, and no slot leaks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from itertools import count

import pytest

from mulligan.core.contract import Store
from mulligan.core.groups import FAIR
from mulligan.core.limits import TOKEN, Slots
from mulligan.stores import open_store
from tests.builders import ask, bucket, claim, done, fresh_id, grip, grouped, us
from tests.outages.drain import place
from tests.servers import Proxy, Server

STEPS_MAX = 8  # no call takes more
LIMITS = (Slots(most=5), Slots(most=1, by_key=True), bucket("all", burst=100), bucket("tenant", burst=50, part=FAIR))


@pytest.fixture
async def store(running: Server, proxy: Proxy, impatient: None) -> AsyncIterator[Store]:
    """A store behind the wire, on the server's own clock, with jobs of three tenants."""
    store = open_store(proxy.url_of(place(running.url)))
    await store.open()
    await store.insert([grouped(fair=f"t{number % 3}", key=f"k{number}") for number in range(60)])
    await store.settle([done(job) for job in (await claim(store, ask(limits=LIMITS), total=1)).jobs])
    yield store
    await store.close()


def the_one(number: int) -> Callable[[bytes], bool]:
    """The request with this number from now on."""
    numbers = count()
    return lambda request: next(numbers) == number


async def spent(store: Store) -> int:
    """How many tokens were taken so far; those of tenants must add up to those of all."""
    levels = {key: level.level_u for key, level in (await store.levels()).items()}
    of_all = 100 * TOKEN - levels.pop("all")
    assert sum(50 * TOKEN - level_u for level_u in levels.values()) == of_all
    return of_all // TOKEN


async def test_claim(store: Store, proxy: Proxy) -> None:
    """The caller gets five jobs, pays for five, and the queue is then as full as it may be: with each of the claim's steps in turn."""
    for step in range(STEPS_MAX):
        before = await spent(store)
        lost = proxy.drop_reply(the_one(step))
        claimed = await claim(store, ask(limits=LIMITS), total=7, claim_id=fresh_id())
        assert lost.is_set() or step > 0
        assert len({job.id for job in claimed.jobs}) == 5
        assert [(job.fence, job.attempts) for job in claimed.jobs] == [(1, 1)] * 5
        assert await spent(store) == before + 5
        assert (await claim(store, ask(limits=LIMITS))).jobs == []
        await store.settle([done(job) for job in claimed.jobs])


async def test_renewal_of_an_ended_lease(store: Store, proxy: Proxy) -> None:
    """It is held after all, and takes one slot: with each of its steps in turn."""
    for step in range(STEPS_MAX):
        [job] = (await claim(store, ask(limits=LIMITS), total=1, lease_s=0)).jobs
        lost = proxy.drop_reply(the_one(step))
        [renewal] = await store.renew([grip(job)], us(60))
        assert renewal.held
        assert lost.is_set() or step > 0
        others = (await claim(store, ask(limits=LIMITS))).jobs
        assert len(others) == 4
        await store.settle([done(one) for one in (job, *others)])
