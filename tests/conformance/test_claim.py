from __future__ import annotations

import asyncio

import pytest

from mulligan.core.clock import ManualClock
from mulligan.core.contract import Ask, Order, Store
from mulligan.core.job import Lane
from tests.builders import (
    ask,
    claim,
    claim_one,
    done,
    failed,
    fifo,
    fresh_id,
    full_state,
    get,
    new_job,
    put_and_claim,
    release,
    requeue,
    retry,
    snooze,
    us,
)


async def test_claim_takes_the_job_under_a_fence_and_a_lease(store: Store, clock: ManualClock) -> None:
    """A claim sets processing, raises fence and attempts, and clears the due time, all from the store's clock."""
    job = new_job()
    await store.insert([job])
    clock.advance(2)
    claimed = await claim(store, claim_id="claim-1", owner="me", lease_s=30)
    now = clock.now_us()
    assert claimed.now_us == now
    [row] = claimed.jobs
    assert (row.id, row.status, row.fence, row.attempts) == (job.id, "processing", 1, 1)
    assert (row.run_at_us, row.claim_id, row.lease_owner, row.lease_expires_at_us) == (None, "claim-1", "me", now + us(30))
    assert (row.updated_at_us, row.created_at_us, row.read_at_us) == (now, now - us(2), now)
    assert row == await get(store, job.id)


async def test_a_claimed_job_is_not_claimed_again(store: Store, clock: ManualClock) -> None:
    """Claim takes only pending jobs, never one whose lease has ended."""
    await put_and_claim(store, lease_s=1)
    clock.advance(3_600)
    assert (await claim(store, fifo())).jobs == []


async def test_finished_jobs_are_not_claimed(store: Store) -> None:
    """Done, failed and cancelled jobs rest."""
    await store.settle([done(await put_and_claim(store)), failed(await put_and_claim(store))])
    pending = new_job()
    await store.insert([pending])
    await store.request_cancel([pending.id])
    assert (await claim(store, fifo(), ask(), ask(lane="retry"))).jobs == []


async def test_a_repeat_of_a_wide_claim_answers_its_jobs_in_their_order(store: Store) -> None:
    """Also where their places take more than a byte."""
    await store.insert([new_job() for _ in range(400)])
    first = await claim(store, claim_id="wide", total=300)
    again = await claim(store, claim_id="wide", total=300)
    assert [job.id for job in again.jobs] == [job.id for job in first.jobs]
    assert len(first.jobs) == 300


async def test_due_is_inclusive(store: Store, clock: ManualClock) -> None:
    """A job is not claimed a microsecond before its time, and is at that very time (M05, W04)."""
    await store.insert([new_job(delay_s=10)])
    clock.advance(9.999999)
    assert (await claim(store)).jobs == []
    clock.advance(0.000001)
    assert len((await claim(store)).jobs) == 1


async def test_a_clock_set_back_makes_a_due_job_wait_again(store: Store, clock: ManualClock) -> None:
    """Due is judged at each claim by the store's present time, not by what it was once."""
    await store.insert([new_job(delay_s=10)])
    clock.advance(10)
    assert (await claim(store, ask("other"))).jobs == []
    clock.advance(-1)
    first = await claim(store, ask(), fifo())
    assert (first.jobs, first.next_due_us) == ([], clock.now_us() + us(1))
    clock.advance(1)
    assert len((await claim(store, fifo())).jobs) == 1


@pytest.mark.parametrize("wanted", [fifo(), ask()])
async def test_a_clock_set_back_after_a_claim_in_another_order(store: Store, clock: ManualClock, wanted: Ask) -> None:
    """Jobs that a claim saw as due and left there wait again when the clock is set back, and the next due time tells it."""
    await store.insert([new_job(delay_s=10) for _ in range(3)])
    clock.advance(10)
    assert len((await claim(store, fifo(), total=1)).jobs) == 1
    clock.advance(-4)
    waiting = await claim(store, wanted)
    assert (waiting.jobs, waiting.next_due_us) == ([], clock.now_us() + us(4))
    clock.advance(4)
    assert len((await claim(store, wanted)).jobs) == 2


async def test_fence_rises_with_every_claim_and_never_falls(store: Store) -> None:
    """Each of several claims of one job has the next fence, also after the attempt is refunded and over generations."""
    job = await put_and_claim(store)
    assert job.fence == 1
    for expected, give_back in enumerate([release, snooze, retry, release], start=2):
        await store.settle([give_back(job)])
        job = await claim_one(store)
        assert job.fence == expected
    await store.settle([failed(job)])
    await store.settle([requeue(await get(store, job.id))])
    again = await claim_one(store)
    assert (again.fence, again.attempts, again.generation) == (6, 1, 2)


async def test_settle_id_stays_over_a_claim(store: Store) -> None:
    """The claim leaves the last settle_id on the row, so that a late repeat is still recognised."""
    job = await put_and_claim(store)
    await store.settle([retry(job, settle_id="s-1")])
    assert (await claim_one(store)).settle_id == "s-1"


async def test_no_job_goes_to_two_claimers(store: Store) -> None:
    """Of many concurrent claims each job goes to one, and none is left over."""
    jobs = [new_job() for _ in range(40)]
    await store.insert(jobs)
    answers = await asyncio.gather(*(claim(store, total=5, owner=f"w{number}") for number in range(12)))
    taken = [job.id for answer in answers for job in answer.jobs]
    assert sorted(taken) == sorted(job.id for job in jobs)


async def test_total_bounds_the_claim(store: Store) -> None:
    """A claim takes at most its total, the earliest due first."""
    jobs = [new_job() for _ in range(5)]
    await store.insert(jobs)
    assert [job.id for job in (await claim(store, total=3)).jobs] == [job.id for job in jobs[:3]]


@pytest.mark.parametrize("total", [0, -1])
async def test_nothing_is_claimed_for_a_total_of_none(store: Store, total: int) -> None:
    """A total of zero or less takes nothing and changes nothing."""
    await store.insert([new_job()])
    before = await full_state(store)
    assert (await claim(store, total=total)).jobs == []
    assert await full_state(store) == before


async def test_nothing_is_claimed_without_asks(store: Store) -> None:
    """A claim without asks takes nothing and changes nothing."""
    await store.insert([new_job()])
    before = await full_state(store)
    assert (await store.claim(fresh_id(), "me", [], 5, us(30))).jobs == []
    assert await full_state(store) == before


async def test_empty_claim_changes_nothing(store: Store, clock: ManualClock) -> None:
    """A claim that finds nothing leaves everything as it was, also the use of its claim_id (M05)."""
    await store.insert([new_job(delay_s=60), new_job("other")])
    before = await full_state(store)
    assert (await claim(store, claim_id="c-1")).jobs == []
    assert await full_state(store) == before
    clock.advance(60)
    assert len((await claim(store, claim_id="c-1")).jobs) == 1


async def test_ask_takes_only_its_queue_lane_and_priority(store: Store) -> None:
    """Nothing but what was asked for is claimed."""
    for lane in ("retry", "fresh"):
        for queue in ("a", "b"):
            jobs = [new_job(queue, priority=priority, tags=(f"{queue}{lane}{priority}",)) for priority in (0, 1, 2)]
            await store.insert(jobs)
            if lane == "retry":
                claimed = await claim(store, *(ask(queue, priority=priority) for priority in (0, 1, 2)))
                await store.settle([retry(job) for job in claimed.jobs])
    lanes: tuple[Lane, ...] = ("fresh", "retry")
    for queue in ("a", "b"):
        for wanted in lanes:
            for priority in (0, 1, 2):
                jobs_taken = (await claim(store, ask(queue, wanted, priority=priority))).jobs
                assert [job.tags for job in jobs_taken] == [(f"{queue}{wanted}{priority}",)]
    assert (await claim(store, fifo("a"), fifo("b"))).jobs == []


async def test_run_at_order_with_ties_by_id(store: Store, clock: ManualClock) -> None:
    """Within an ask the earliest run_at comes first, whatever the order of insertion; equal times go by id."""
    low, mid, high = fresh_id(), fresh_id(), fresh_id()
    jobs = [new_job(id=high, delay_s=2), new_job(id=low, delay_s=2), new_job(id=mid, delay_s=3), new_job(delay_s=1)]
    await store.insert(jobs)
    clock.advance(3)
    assert [job.id for job in (await claim(store)).jobs] == [jobs[3].id, low, high, mid]


async def test_fifo_order_is_created_at_with_ties_by_id_over_both_lanes(store: Store, clock: ManualClock) -> None:
    """`created_at` order takes the oldest job first, retry or not, whatever its due time; ties go by id (M06)."""
    low, high = fresh_id(), fresh_id()
    old = new_job(delay_s=5)
    await store.insert([old])
    clock.advance(1)
    tied = [new_job(id=high), new_job(id=low)]
    await store.insert(tied)
    retried = next(job for job in (await claim(store)).jobs if job.id == high)
    await store.settle([retry(retried, delay_s=3)])
    await store.settle([release(await get(store, low))])
    clock.advance(1)
    young = new_job()
    await store.insert([young])
    assert [job.id for job in (await claim(store, fifo(), total=1)).jobs] == [low]
    clock.advance(5)
    claimed = await claim(store, fifo())
    assert [(job.id, job.lane) for job in claimed.jobs] == [(old.id, "fresh"), (high, "retry"), (young.id, "fresh")]


@pytest.mark.parametrize("order", ["run_at", "created_at"])
async def test_fifo_sees_past_many_jobs_of_the_future(store: Store, order: Order) -> None:
    """Due jobs are found behind any number of older ones that are not due yet."""
    await store.insert([new_job(delay_s=1_000 + number) for number in range(300)])
    due = [new_job() for _ in range(3)]
    await store.insert(due)
    assert [job.id for job in (await claim(store, ask(lane=None, order=order), total=3)).jobs] == [job.id for job in due]


async def test_result_order_is_ask_order_then_candidate_order(store: Store) -> None:
    """Jobs come back ask by ask, in the order in which each ask lists them."""
    first, second, third = new_job("a"), new_job("b"), new_job("a")
    await store.insert([first, second, third])
    assert [job.id for job in (await claim(store, ask("b"), ask("a"))).jobs] == [second.id, first.id, third.id]


async def test_overlapping_asks_never_take_a_job_twice(store: Store) -> None:
    """A job that two asks list is claimed once."""
    await store.insert([new_job() for _ in range(4)])
    jobs = (await claim(store, ask(guaranteed=2), fifo(), ask(guaranteed=2), total=8)).jobs
    assert len({job.id for job in jobs}) == len(jobs) <= 4
    assert all(job.fence == 1 for job in jobs)


async def test_paused_queue_is_not_claimed(store: Store) -> None:
    """A paused queue gives no job and no due time; another queue of the same claim is not affected."""
    await store.insert([new_job("a"), new_job("a", delay_s=5), new_job("b")])
    await store.set_queue("a", paused=True)
    claimed = await claim(store, ask("a"), ask("b"))
    assert [job.queue for job in claimed.jobs] == ["b"]
    assert claimed.next_due_us is None
    await store.set_queue("a", paused=False)
    assert [job.queue for job in (await claim(store, ask("a"))).jobs] == ["a"]


async def test_repeated_claim_id_returns_what_it_holds_and_claims_no_more(store: Store, clock: ManualClock) -> None:
    """A repeat after a lost reply gets the same jobs, with fence and lease unchanged, and no further ones."""
    await store.insert([new_job() for _ in range(5)])
    first = (await claim(store, claim_id="c-1", total=2)).jobs
    clock.advance(5)
    second = (await claim(store, claim_id="c-1", total=4)).jobs
    assert [(job.id, job.fence, job.lease_expires_at_us) for job in second] == [
        (job.id, job.fence, job.lease_expires_at_us) for job in first
    ]
    assert {job.read_at_us for job in second} == {clock.now_us()}
    assert len((await claim(store)).jobs) == 3


async def test_repeated_claim_id_after_partial_settlement(store: Store) -> None:
    """A repeat returns only the jobs that are still held under the claim; when all are settled, none."""
    await store.insert([new_job() for _ in range(3)])
    jobs = (await claim(store, claim_id="c-1", total=3)).jobs
    await store.insert([new_job() for _ in range(3)])
    await store.settle([done(jobs[1])])
    assert sorted(job.id for job in (await claim(store, claim_id="c-1", total=3)).jobs) == sorted([jobs[0].id, jobs[2].id])
    await store.settle([retry(jobs[0]), failed(jobs[2])])
    assert (await claim(store, claim_id="c-1", total=3)).jobs == []


async def test_repeated_claim_id_does_not_return_a_job_taken_by_another_claim(store: Store) -> None:
    """A job that went back and was claimed under another id belongs to that one."""
    job = await put_and_claim(store)
    await store.settle([release(job)])
    await claim(store, claim_id="c-1")
    await store.settle([release(await get(store, job.id))])
    other = await claim(store, claim_id="c-2")
    assert [one.id for one in other.jobs] == [job.id]
    assert (await claim(store, claim_id="c-1")).jobs == []


async def test_repeated_claim_id_still_holds_a_lapsed_job(store: Store, clock: ManualClock) -> None:
    """A lease that has ended but was not taken over is still held under its claim."""
    await store.insert([new_job()])
    await claim(store, claim_id="c-1", lease_s=1)
    clock.advance(60)
    assert len((await claim(store, claim_id="c-1")).jobs) == 1


async def test_claim_ids_are_remembered_for_an_hour(store: Store, clock: ManualClock) -> None:
    """A claim_id is known for at least an hour, also when nothing is held under it any more."""
    await store.insert([new_job()])
    [job] = (await claim(store, claim_id="c-1")).jobs
    await store.settle([done(job)])
    clock.advance(1_800)
    await store.insert([new_job()])
    await claim(store, claim_id="c-2")
    clock.advance(1_799)
    await store.insert([new_job()])
    assert (await claim(store, claim_id="c-1")).jobs == []
    assert len((await claim(store, claim_id="c-3")).jobs) == 1


async def test_many_repeats_of_a_claim_at_once_take_one_batch(store: Store) -> None:
    """Concurrent calls with one claim_id take one batch between them."""
    await store.insert([new_job() for _ in range(10)])
    answers = await asyncio.gather(*(claim(store, claim_id="c-1", total=2) for _ in range(6)))
    assert len({tuple(sorted(job.id for job in answer.jobs)) for answer in answers}) == 1
    assert (await store.stats()).queues[0].processing == 2


async def test_a_repeat_beside_the_call_it_repeats_does_not_answer_that_there_is_nothing(store: Store) -> None:
    """Also where that call has all there is: else its jobs would be held by somebody who does not know of them."""
    for number in range(5):
        await store.insert([new_job(), new_job()])
        answers = await asyncio.gather(*(claim(store, claim_id=f"c-{number}", total=2) for _ in range(6)))
        assert [len(answer.jobs) for answer in answers] == [2] * 6


async def test_next_due_is_the_earliest_future_job_of_the_asked_queues(store: Store, clock: ManualClock) -> None:
    """A claim that got less than it wanted learns when the next job falls due: any lane and priority, asked queues only."""
    await store.insert(
        [new_job(delay_s=50), new_job(priority=2, delay_s=40), new_job("b", delay_s=30), new_job("c", delay_s=10), new_job()]
    )
    claimed = await claim(store, ask(), ask("b"))
    assert len(claimed.jobs) == 1
    assert claimed.next_due_us == clock.now_us() + us(30)
    assert (await claim(store, ask())).next_due_us == clock.now_us() + us(40)


async def test_next_due_counts_retries_that_back_off(store: Store, clock: ManualClock) -> None:
    """An idle worker learns of a retry that will fall due, also if it asked for the fresh lane only (R05)."""
    await store.settle([retry(await put_and_claim(store), delay_s=7)])
    assert (await claim(store, ask())).next_due_us == clock.now_us() + us(7)


async def test_next_due_is_none_when_nothing_waits_or_the_total_was_taken(store: Store) -> None:
    """No due time is told when no job waits, or when there may be more due jobs at once."""
    assert (await claim(store)).next_due_us is None
    await store.insert([new_job(), new_job(), new_job(delay_s=5)])
    assert (await claim(store, total=2)).next_due_us is None


async def test_next_due_ignores_jobs_that_are_due_already(store: Store, clock: ManualClock) -> None:
    """A due job of a priority that was not asked for is not the next to fall due."""
    await store.insert([new_job(priority=1), new_job(delay_s=9)])
    assert (await claim(store, ask())).next_due_us == clock.now_us() + us(9)


async def test_due_retry_is_claimed_though_the_fresh_lane_is_empty(store: Store, clock: ManualClock) -> None:
    """A retry needs no fresh job to come along, and no sweep to make it eligible (M11, D2)."""
    await store.settle([retry(await put_and_claim(store), delay_s=4)])
    clock.advance(4)
    job = await claim_one(store)
    assert (job.lane, job.attempts, job.failures) == ("retry", 2, 1)


async def test_one_jobs_failures_do_not_delay_another(store: Store) -> None:
    """A job that backs off is out of the way of the next one (W05)."""
    await store.settle([retry(await put_and_claim(store), delay_s=100)])
    other = new_job()
    await store.insert([other])
    assert [job.id for job in (await claim(store)).jobs] == [other.id]
