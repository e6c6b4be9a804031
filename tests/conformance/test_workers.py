from __future__ import annotations

from msgspec.structs import replace

from mulligan.core.clock import ManualClock
from mulligan.core.contract import Store
from tests.builders import get, grip, put_and_claim, us, worker_info


async def test_a_worker_reports_itself_with_its_renewal(store: Store, clock: ManualClock) -> None:
    """Every field is kept, and the time it was seen is the store's."""
    job = await put_and_claim(store)
    worker = worker_info(unknown_tasks=("ghost", "ghöst"), version="0.1.0", seen_at_us=99)
    [answer] = await store.renew([grip(job)], us(30), worker)
    assert answer.held
    assert await store.workers() == [replace(worker, seen_at_us=clock.now_us())]


async def test_a_worker_without_jobs_reports_itself_too(store: Store, clock: ManualClock) -> None:
    """An idle worker renews nothing and is seen all the same."""
    assert await store.renew([], us(30), worker_info(queues=(), running=0)) == []
    assert [worker.seen_at_us for worker in await store.workers()] == [clock.now_us()]


async def test_a_report_replaces_the_one_before(store: Store, clock: ManualClock) -> None:
    """A worker is listed once, as it last reported itself."""
    await store.renew([], us(30), worker_info(running=1))
    clock.advance(10)
    await store.renew([], us(30), worker_info(running=2, queues=("x",)))
    assert await store.workers() == [worker_info(running=2, queues=("x",), seen_at_us=clock.now_us())]


async def test_renewal_without_a_report_changes_no_worker(store: Store, clock: ManualClock) -> None:
    """Manual claims renew without being workers."""
    job = await put_and_claim(store)
    await store.renew([], us(30), worker_info())
    seen = await store.workers()
    clock.advance(5)
    await store.renew([grip(job)], us(30))
    assert await store.workers() == seen


async def test_silent_workers_are_forgotten_after_an_hour(store: Store, clock: ManualClock) -> None:
    """A worker that was not seen for over an hour is gone with the next report; at exactly an hour it is still listed."""
    await store.renew([], us(30), worker_info("old"))
    clock.advance(1)
    await store.renew([], us(30), worker_info("older-by-an-hour"))
    clock.advance(3_600)
    await store.renew([], us(30), worker_info("new"))
    assert sorted(worker.id for worker in await store.workers()) == ["new", "older-by-an-hour"]


async def test_a_refused_grip_still_reports_the_worker(store: Store, clock: ManualClock) -> None:
    """A worker that lost its jobs is alive."""
    job = await put_and_claim(store)
    [answer] = await store.renew([replace(grip(job), fence=99)], us(30), worker_info())
    assert not answer.held
    assert len(await store.workers()) == 1
    assert (await get(store, job.id)).lease_expires_at_us == job.lease_expires_at_us
