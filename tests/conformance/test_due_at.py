"""due_at: the run_at a job was last given, which a running and a finished job still know."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from mulligan.core.change import Change
from mulligan.core.clock import ManualClock, us_to_datetime
from mulligan.core.contract import Ask, Query, Store
from mulligan.core.limits import Slots
from mulligan.stores import open_store
from tests.builders import (
    ask,
    cancelled,
    claim,
    claim_one,
    crash,
    done,
    failed,
    fifo,
    get,
    grip,
    grouped,
    new_job,
    put_and_claim,
    release,
    requeue,
    retry,
    schedule,
    snooze,
    tick,
    us,
)


async def test_a_new_job_is_due_at_its_run_at(store: Store, clock: ManualClock) -> None:
    """It is there from the beginning: at once, after a delay, or at a given time, past or future."""
    now_us = clock.now_us()
    jobs = [new_job(), new_job(delay_s=60.5), new_job(eta_us=now_us + us(90)), new_job(eta_us=now_us - us(90), delay_s=5)]
    jobs += [grouped(fair="a", delay_s=3), grouped(key="k", eta_us=now_us + 1)]
    await store.insert(jobs)
    wanted = [now_us + us(seconds) for seconds in (0, 60.5, 90, -90, 3)] + [now_us + 1]
    rows = [await get(store, job.id) for job in jobs]
    assert [row.due_us for row in rows] == [row.run_at_us for row in rows] == wanted
    assert rows[1].due_at == us_to_datetime(now_us + us(60.5))
    found = {row.id: row.due_us for row in (await store.find(Query(), 10)).jobs}
    assert [found[job.id] for job in jobs] == wanted


async def test_a_job_of_a_schedule_is_due_at_its_run_at(store: Store, clock: ManualClock) -> None:
    """A tick makes its job like any other insert."""
    planned = await store.put_schedule(schedule())
    job = new_job(schedule=planned.name, tick_us=planned.next_tick_us, delay_s=2)
    assert await store.fire([tick(planned, job)]) == [True]
    assert (await get(store, job.id)).due_us == clock.now_us() + us(2)


@pytest.mark.parametrize("fair", [None, "tenant"])
@pytest.mark.parametrize("wanted", [ask(), ask(lane=None), fifo(), ask(limits=(Slots(most=9),))], ids=["lane", "both", "age", "limited"])
async def test_a_claim_keeps_it(store: Store, clock: ManualClock, fair: str | None, wanted: Ask) -> None:
    """Whatever the kind of claim, a running job knows when it fell due, in the claim's answer, in its repeat and when it is read."""
    due_us = [clock.now_us() + us(seconds) for seconds in (3, 4, 5)]
    jobs = [grouped(fair=fair, delay_s=seconds) for seconds in (3, 4, 5)]
    await store.insert(jobs)
    clock.advance(10)
    taken = (await claim(store, wanted, claim_id="c")).jobs
    assert {job.id: (job.due_us, job.run_at_us) for job in taken} == {job.id: (at, None) for job, at in zip(jobs, due_us, strict=True)}
    assert [job.updated_at_us - job.due_us for job in sorted(taken, key=lambda job: job.due_us)] == [us(7), us(6), us(5)]
    again = (await claim(store, wanted, claim_id="c")).jobs
    assert {job.id: job.due_us for job in again} == {job.id: job.due_us for job in taken}
    assert [(await get(store, job.id)).due_us for job in jobs] == due_us


async def test_a_claim_in_the_other_order_keeps_it(store: Store, clock: ManualClock) -> None:
    """Jobs that a claim by age has marked, and one by time then meets, have lost nothing."""
    start = clock.now_us()
    await store.insert([new_job(delay_s=seconds) for seconds in (1, 2, 3)])
    clock.advance(5)
    first = await claim(store, fifo(), total=1)
    rest = await claim(store, ask())
    assert sorted(job.due_us for job in (*first.jobs, *rest.jobs)) == [start + us(seconds) for seconds in (1, 2, 3)]


async def test_a_renewal_keeps_it(store: Store, clock: ManualClock) -> None:
    """A longer lease has nothing to do with when the job fell due."""
    due_us = clock.now_us()
    job = await put_and_claim(store)
    clock.advance(3)
    await store.renew([grip(job)], us(60))
    assert (await get(store, job.id)).due_us == due_us


@pytest.mark.parametrize("end", [done, failed, cancelled], ids=lambda end: str(end.__name__))
async def test_a_job_that_ends_keeps_it(store: Store, clock: ManualClock, end: Callable[..., Change]) -> None:
    """What a finished job has waited can still be told."""
    due_us = clock.now_us() + us(5)
    await store.insert([new_job(delay_s=5)])
    clock.advance(7)
    job = await claim_one(store)
    clock.advance(1)
    await store.settle([end(job)])
    row = await get(store, job.id)
    assert (row.due_us, row.run_at_us, row.finished_at_us) == (due_us, None, due_us + us(3))


async def test_many_that_end_at_once_keep_theirs(store: Store, clock: ManualClock) -> None:
    """A batch of successes writes nothing but what a success changes."""
    start = clock.now_us()
    jobs = [new_job(delay_s=seconds) for seconds in (1, 2, 3)]
    await store.insert(jobs)
    clock.advance(5)
    await store.settle([done(job) for job in (await claim(store)).jobs])
    assert [(await get(store, job.id)).due_us for job in jobs] == [start + us(seconds) for seconds in (1, 2, 3)]


async def test_a_cancelled_job_keeps_it(store: Store, clock: ManualClock) -> None:
    """Cancelled while it waited, or when it was to wait again: it was never given another time."""
    start = clock.now_us()
    waiting = new_job(delay_s=9)
    running = await put_and_claim(store)
    await store.insert([waiting])
    clock.advance(1)
    assert await store.request_cancel([waiting.id, running.id]) == ["cancelled", "requested"]
    await store.settle([retry(running, delay_s=60)])
    rows = [await get(store, job_id) for job_id in (waiting.id, running.id)]
    assert [(row.status, row.due_us) for row in rows] == [("cancelled", start + us(9)), ("cancelled", start)]


@pytest.mark.parametrize("back", [retry, snooze, release], ids=lambda back: str(back.__name__))
@pytest.mark.parametrize("fair", [None, "tenant"])
async def test_a_job_that_goes_back_gets_another(store: Store, clock: ManualClock, back: Callable[..., Change], fair: str | None) -> None:
    """Each way back to pending gives a new time, and the next claim keeps that one."""
    await store.insert([job := grouped(fair=fair)])
    clock.advance(2)
    held = await claim_one(store)
    await store.settle([back(held, delay_s=12.5)])
    due_us = clock.now_us() + us(12.5)
    row = await get(store, job.id)
    assert (row.due_us, row.run_at_us, row.due_first_us) == (due_us, due_us, held.due_us)
    clock.advance(20)
    assert (await claim_one(store)).due_us == due_us


async def test_a_taken_over_job_gets_another(store: Store, clock: ManualClock) -> None:
    """A job whose holder vanished falls due anew; the sweep that finds it still sees when it fell due before."""
    due_us = clock.now_us()
    job = await put_and_claim(store, lease_s=1)
    clock.advance(3)
    [lapsed] = await store.overdue(10)
    assert lapsed.due_us == due_us
    await store.settle([crash(lapsed, delay_s=4)])
    assert (await get(store, job.id)).due_us == clock.now_us() + us(4)
    clock.advance(5)
    assert (await claim_one(store)).due_us == clock.now_us() - us(1)


async def test_a_requeued_job_gets_another(store: Store, clock: ManualClock) -> None:
    """An operator's requeue begins a new wait, also in the batch that ended the job."""
    job = await put_and_claim(store, unique_key="k")
    clock.advance(1)
    await store.settle([failed(job)])
    clock.advance(1)
    await store.settle([requeue(await get(store, job.id), delay_s=2)])
    due_us = clock.now_us() + us(2)
    row = await get(store, job.id)
    assert (row.due_us, row.run_at_us, row.due_first_us) == (due_us, due_us, due_us)
    clock.advance(9)
    held = await claim_one(store)
    assert held.due_us == due_us
    await store.settle([failed(held), requeue(held, delay_s=1)])
    assert (await get(store, job.id)).due_us == clock.now_us() + us(1)


async def test_changes_of_one_batch_get_each_their_own(store: Store, clock: ManualClock) -> None:
    """Ends and ways back that are written together do not mix."""
    start = clock.now_us()
    await store.insert([new_job() for _ in range(5)])
    jobs = (await claim(store)).jobs
    clock.advance(1)
    changes = [done(jobs[0]), retry(jobs[1], delay_s=3), snooze(jobs[2], delay_s=7), failed(jobs[3]), retry(jobs[4], delay_s=9)]
    await store.settle(changes)
    now_us = clock.now_us()
    assert [(await get(store, job.id)).due_us for job in jobs] == [start, now_us + us(3), now_us + us(7), start, now_us + us(9)]


async def test_a_restored_job_keeps_its_own(store: Store, clock: ManualClock) -> None:
    """Jobs of another store come with the time they had there, in every status, and go on from it."""
    source = open_store("memory://", clock=clock)
    await source.open()
    await source.insert([new_job() for _ in range(5)])
    clock.advance(2)
    jobs = (await claim(source)).jobs
    await source.settle([done(jobs[0]), failed(jobs[1]), retry(jobs[2], delay_s=60), cancelled(jobs[3])])
    originals = [replace(await get(source, job.id), read_at_us=0) for job in jobs]
    assert len({job.status for job in originals}) == 5
    assert await store.restore(originals) == [True] * 5
    assert [replace(await get(store, job.id), read_at_us=0) for job in jobs] == originals
    assert originals[2].due_us == originals[2].run_at_us == clock.now_us() + us(60)
    clock.advance(61)
    assert (await claim_one(store)).due_us == originals[2].due_us
    [lapsed] = await store.overdue(10)
    assert (lapsed.id, lapsed.due_us) == (jobs[4].id, originals[4].due_us)
