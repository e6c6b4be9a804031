"""Replies lost after the server has done its work: every call is safe to repeat, and the store repeats it by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from mulligan.core.contract import Query, Store
from mulligan.stores import open_store
from tests.builders import claim, done, fifo, fresh_id, get, grip, new_job, put_and_claim, retry
from tests.outages.drain import place
from tests.servers import Proxy, Server


@pytest.fixture
async def store(running: Server, proxy: Proxy, impatient: None) -> AsyncIterator[Store]:
    """A store behind the wire, on the server's own clock."""
    store = open_store(proxy.url_of(place(running.url)))
    await store.open()
    await store.insert([new_job("warm")])  # so that connections are up and statements are prepared
    await claim(store, fifo("warm"))
    yield store
    await store.close()


def names(text: str) -> Callable[[bytes], bool]:
    """Requests that hold this text."""
    return lambda request: text.encode() in request


async def test_insert(store: Store, proxy: Proxy) -> None:
    """The job is there once, and the producer hears that it made it."""
    job = new_job()
    lost = proxy.drop_reply(names(job.id))
    [answer] = await store.insert([job])
    assert lost.is_set()
    assert (answer.id, answer.created) == (job.id, True)
    assert [one.id for one in (await store.find(Query(queue="q"), 10)).jobs] == [job.id]


async def test_insert_with_a_unique_key(store: Store, proxy: Proxy) -> None:
    """The repeat finds the key taken by the job itself, which is no conflict."""
    job = new_job(unique_key="only")
    lost = proxy.drop_reply(names(job.id))
    [answer] = await store.insert([job])
    assert lost.is_set()
    assert (answer.id, answer.created) == (job.id, True)


async def test_claim(store: Store, proxy: Proxy) -> None:
    """The repeat under the same claim id gets the same jobs, and takes no more."""
    jobs = [new_job() for _ in range(10)]
    await store.insert(jobs)
    claim_id = fresh_id()
    lost = proxy.drop_reply(names(claim_id))
    taken = await claim(store, total=5, claim_id=claim_id)
    assert lost.is_set()
    assert [(job.id, job.fence, job.attempts) for job in taken.jobs] == [(job.id, 1, 1) for job in jobs[:5]]
    assert sum(queue.processing for queue in (await store.stats()).queues if queue.queue == "q") == 5


async def test_renew(store: Store, proxy: Proxy) -> None:
    """The lease is longer, and still held."""
    job = await put_and_claim(store, lease_s=5)
    lost = proxy.drop_reply(names(job.id))
    [renewal] = await store.renew([grip(job)], 3_600_000_000)
    assert lost.is_set()
    assert renewal.held
    assert ((await get(store, job.id)).lease_expires_at_us or 0) > (job.lease_expires_at_us or 0) + 3_000_000_000


async def test_settle(store: Store, proxy: Proxy) -> None:
    """A success and a retry are applied once; the repeat says so, and leaves one record of each."""
    good, bad = await put_and_claim(store), await put_and_claim(store)
    lost = proxy.drop_reply(names(good.id))
    verdicts = await store.settle([done(good, '"x"'), retry(bad, delay_s=60)])
    assert lost.is_set()
    assert [(verdict.applied, verdict.status) for verdict in verdicts] == [(True, "done"), (True, "pending")]
    again = await get(store, bad.id)
    assert (again.failures, len(again.history)) == (1, 1)
    assert (await get(store, good.id)).result == "x"


async def test_cancel(store: Store, proxy: Proxy) -> None:
    """The answer is that it is cancelled, as it was the first time."""
    job = new_job()
    await store.insert([job])
    lost = proxy.drop_reply(names(job.id))
    assert await store.request_cancel([job.id]) == ["cancelled"]
    assert lost.is_set()


async def test_put_receipt(store: Store, proxy: Proxy) -> None:
    """The repeat finds its own receipt, and there is one."""
    job = await put_and_claim(store)
    lost = proxy.drop_reply(names(job.id))
    receipt = await store.put_receipt(grip(job), "charge", "42")
    assert lost.is_set()
    assert receipt is not None and (receipt.value, receipt.fence) == (42, 1)
    assert await store.receipts([job.id]) == [[receipt]]


async def test_a_storm_of_lost_replies_over_a_whole_life(store: Store, proxy: Proxy) -> None:
    """One reply lost at each step of twenty lives: insert, claim, fail, claim, succeed; counters are as if none had been lost."""
    for _ in range(20):
        job = new_job()
        proxy.drop_reply(names(job.id))
        await store.insert([job])
        for ending in (retry, done):
            claim_id = fresh_id()
            proxy.drop_reply(names(claim_id))
            async with asyncio.timeout(10):
                while not (taken := (await claim(store, fifo("q"), total=1, claim_id=claim_id)).jobs):
                    claim_id = fresh_id()
            proxy.drop_reply(names(job.id))
            [verdict] = await store.settle([ending(taken[0])])
            assert verdict.applied
        stored = await get(store, job.id)
        assert (stored.status, stored.fence, stored.attempts, stored.failures, len(stored.history)) == ("done", 2, 2, 1, 1)
