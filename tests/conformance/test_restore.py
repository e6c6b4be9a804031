"""Whole jobs, carried from one store into another."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mulligan.core.clock import ManualClock
from mulligan.core.contract import Query, Store
from mulligan.core.errors import StoreRejected
from mulligan.core.job import Job
from mulligan.stores import open_store
from tests.builders import cancelled, claim, claim_one, done, failed, fifo, fresh_id, get, new_job, requeue, retry


async def jobs_of_every_kind(clock: ManualClock) -> list[Job]:
    """A job in each status, with histories, from a memory store on the same clock."""
    source = open_store("memory://", clock=clock)
    await source.open()
    fields = {"tags": ("x", "y"), "trace": "00-1-2-3", "unique_key": "k", "fair_key": "t", "priority": 1, "timeout_us": 5, "max_age_us": 9}
    queues = ("done", "failed", "back", "cancelled", "held")
    await source.insert([*(new_job(queue) for queue in queues), new_job("q", **fields)])
    for queue in queues:
        job = await claim_one(source, fifo(queue))
        change = {"done": done(job, '{"n":1}'), "failed": failed(job), "back": retry(job, delay_s=60), "cancelled": cancelled(job)}
        if queue in change:
            await source.settle([change[queue]])
    return [job for summary in (await source.find(Query(), 100)).jobs if (job := await get(source, summary.id))]


async def test_restored_jobs_are_as_they_were(store: Store, clock: ManualClock) -> None:
    """Every field and every record of the history comes back, in every status."""
    jobs = await jobs_of_every_kind(clock)
    assert {job.status for job in jobs} == {"done", "failed", "pending", "cancelled", "processing"}
    assert any(job.history for job in jobs)
    assert await store.restore(jobs) == [True] * len(jobs)
    for job in jobs:
        assert replace(await get(store, job.id), read_at_us=0) == replace(job, read_at_us=0)


async def test_a_known_id_stays_as_it_is(store: Store, clock: ManualClock) -> None:
    """A repeat changes nothing, and says so; of two with one id the first counts."""
    jobs = await jobs_of_every_kind(clock)
    await store.restore(jobs[:3])
    [waiting] = [job for job in jobs if job.queue == "back"]
    assert await store.restore([replace(job, task="other") for job in jobs]) == [False] * 3 + [True] * (len(jobs) - 3)
    assert (await get(store, jobs[0].id)).task == "work"
    twin = replace(waiting, id=fresh_id(), queue="twins")
    assert await store.restore([twin, replace(twin, task="second")]) == [True, False]
    assert (await get(store, twin.id)).task == "work"


async def test_restored_jobs_are_counted(store: Store, clock: ManualClock) -> None:
    """The figures of the queues include them, and stay right when they move on."""
    jobs = await jobs_of_every_kind(clock)
    source = open_store("memory://", clock=clock)
    await source.open()
    await source.restore(jobs)
    await store.restore(jobs)
    assert await store.stats() == await source.stats()
    clock.advance(61)
    job = await claim_one(store, fifo("back"))
    assert job.fence == 2 and job.lane == "retry"
    assert [verdict.applied for verdict in await store.settle([done(job)])] == [True]
    counted = {queue.queue: queue for queue in (await store.stats()).queues}
    assert (counted["back"].done, counted["back"].retry_later, counted["done"].done) == (1, 0, 1)
    assert await store.prune("done", 0, 10) == 2
    counted = {queue.queue: queue for queue in (await store.stats()).queues}
    assert sum(queue.done for queue in counted.values()) == 0


async def test_a_restored_lease_is_still_a_lease(store: Store, clock: ManualClock) -> None:
    """A job that was being processed stays so under its fence, and lapses when its time is over."""
    jobs = await jobs_of_every_kind(clock)
    [held] = [job for job in jobs if job.status == "processing"]
    await store.restore([held])
    assert await store.overdue(10) == []
    clock.advance(31)
    assert [job.id for job in await store.overdue(10)] == [held.id]
    assert [verdict.applied for verdict in await store.settle([done(held)])] == [True]


async def test_a_restored_job_owns_its_unique_key(store: Store, clock: ManualClock) -> None:
    """A second live job of the same key is not restored, nor inserted."""
    jobs = await jobs_of_every_kind(clock)
    [owner] = [job for job in jobs if job.unique_key == "k"]
    await store.restore([owner])
    [answer] = await store.insert([new_job("q", unique_key="k")])
    assert (answer.id, answer.created) == (owner.id, False)
    with pytest.raises(StoreRejected):
        await store.restore([replace(owner, id=fresh_id())])


async def test_a_restored_dead_letter_can_be_requeued(store: Store, clock: ManualClock) -> None:
    """An operator's requeue works on it as on any other."""
    jobs = await jobs_of_every_kind(clock)
    [dead] = [job for job in jobs if job.status == "failed"]
    await store.restore([dead])
    assert [verdict.applied for verdict in await store.settle([requeue(dead)])] == [True]
    clock.advance(1)
    assert [job.id for job in (await claim(store, fifo("failed"))).jobs] == [dead.id]


async def test_nothing_to_restore_is_fine(store: Store) -> None:
    """No jobs, no answers."""
    assert await store.restore([]) == []


async def test_every_store_says_what_it_promises(store: Store) -> None:
    """The promise and the description are words and facts for people; nothing in them is a secret."""
    promise = await store.promise()
    assert promise.loss_window and promise.fail_over and promise.clock
    assert await store.describe()
