from __future__ import annotations

import asyncio

from mulligan.core.clock import ManualClock
from mulligan.core.contract import QueueStats, RunningJob, Store
from mulligan.core.limits import Slots
from tests.builders import (
    ask,
    cancelled,
    claim,
    claim_one,
    crash,
    done,
    failed,
    fifo,
    full_state,
    grip,
    grouped,
    new_job,
    put_and_claim,
    retry,
    us,
)


async def test_empty_store_has_no_queues(store: Store, clock: ManualClock) -> None:
    """Nothing stored, nothing counted; the store's time is told all the same."""
    stats = await store.stats()
    assert (stats.queues, stats.now_us) == ([], clock.now_us())


async def test_every_status_lane_and_readiness_is_counted(store: Store, clock: ManualClock) -> None:
    """Pending is split by lane and by due or later; processing tells how many are stuck (R08)."""
    started = clock.now_us()
    await store.insert([new_job() for _ in range(9)])
    jobs = (await claim(store, lease_s=10)).jobs
    await store.settle([retry(jobs[0]), retry(jobs[1]), retry(jobs[2], delay_s=100), done(jobs[3]), failed(jobs[4]), cancelled(jobs[5])])
    clock.advance(1)
    await store.renew([grip(jobs[8])], us(60))
    await store.insert([new_job(), new_job(delay_s=50), new_job(delay_s=70), new_job(delay_s=90)])
    clock.advance(10)
    [queue] = (await store.stats()).queues
    assert queue == QueueStats(
        queue="q",
        fresh_ready=1,
        fresh_later=3,
        retry_ready=2,
        retry_later=1,
        processing=3,
        stuck=2,
        done=1,
        failed=1,
        cancelled=1,
        retries_running=0,
        oldest_ready_us=started,
        fresh_oldest_us=started + us(1),
        retry_oldest_us=started,
        next_due_us=started + us(51),
        current_job=RunningJob(job_id=jobs[6].id, task="work", retry_count=0, is_retry=False, since_us=started),
    )


async def test_queues_are_sorted_and_independent(store: Store) -> None:
    """Each queue has figures of its own, by name (R06)."""
    await store.insert([new_job("b"), new_job("a"), new_job("C"), new_job("b")])
    assert [(queue.queue, queue.fresh_ready) for queue in (await store.stats()).queues] == [("C", 1), ("a", 1), ("b", 2)]


async def test_a_queue_with_a_setting_but_no_jobs_is_shown(store: Store) -> None:
    """A stored setting makes a queue known, paused or not."""
    await store.set_queue("x", paused=True)
    await store.set_queue("w", paused=False)
    assert (await store.stats()).queues == [QueueStats(queue="w", paused=False), QueueStats(queue="x", paused=True)]


async def test_a_paused_queue_still_counts_its_jobs(store: Store, clock: ManualClock) -> None:
    """Pausing hides nothing from the figures."""
    await store.insert([new_job(), new_job(delay_s=5)])
    await store.set_queue("q", paused=True)
    [queue] = (await store.stats()).queues
    assert (queue.paused, queue.fresh_ready, queue.fresh_later) == (True, 1, 1)
    assert (queue.oldest_ready_us, queue.next_due_us) == (clock.now_us(), clock.now_us() + us(5))


async def test_current_job_is_the_longest_running(store: Store, clock: ManualClock) -> None:
    """The job that has run longest is shown with its retries; a renewal does not make it younger (R08)."""
    first = await put_and_claim(store, task="slow", lease_s=1)
    clock.advance(1)
    await store.settle([crash(first)])
    first = await claim_one(store)
    await store.settle([retry(first)])
    first = await claim_one(store)
    since = clock.now_us()
    clock.advance(1)
    await put_and_claim(store)
    clock.advance(1)
    await store.renew([grip(first)], us(30))
    [queue] = (await store.stats()).queues
    assert queue.current_job == RunningJob(job_id=first.id, task="slow", retry_count=2, is_retry=True, since_us=since)


async def test_current_job_ties_go_by_id(store: Store) -> None:
    """Of jobs claimed at the same time the one with the smallest id is shown."""
    await store.insert([new_job("a") for _ in range(3)])
    jobs = (await claim(store, ask("a"))).jobs
    [queue] = (await store.stats()).queues
    assert queue.current_job is not None
    assert queue.current_job.job_id == min(job.id for job in jobs)


async def test_oldest_ready_is_over_both_lanes(store: Store, clock: ManualClock) -> None:
    """The age of the backlog counts from the run_at of whichever lane waits longest."""
    start = clock.now_us()
    await store.settle([retry(await put_and_claim(store), delay_s=3)])
    await store.insert([new_job(delay_s=4)])
    clock.advance(3)
    [queue] = (await store.stats()).queues
    assert (queue.oldest_ready_us, queue.next_due_us) == (start + us(3), start + us(4))
    clock.advance(1)
    [queue] = (await store.stats()).queues
    assert (queue.oldest_ready_us, queue.next_due_us) == (start + us(3), None)


async def test_each_lane_tells_its_oldest(store: Store, clock: ManualClock) -> None:
    """The longest wait of a lane counts from the earliest run_at that is due in it; a lane without a due job has none."""
    start = clock.now_us()
    await store.settle([retry(await put_and_claim(store), delay_s=3)])
    await store.insert([new_job(delay_s=4, priority=2), new_job(delay_s=6), grouped(fair="a", delay_s=5)])

    async def oldest() -> tuple[int | None, ...]:
        [queue] = (await store.stats()).queues
        return queue.oldest_ready_us, queue.fresh_oldest_us, queue.retry_oldest_us

    assert await oldest() == (None, None, None)
    clock.advance(3)
    assert await oldest() == (start + us(3), None, start + us(3))
    clock.advance(3)
    assert await oldest() == (start + us(3), start + us(4), start + us(3))
    await claim_one(store, ask(lane="retry"))
    assert await oldest() == (start + us(4), start + us(4), None)
    await claim(store, ask(priority=2))
    assert await oldest() == (start + us(5), start + us(5), None)
    await claim(store, ask(), total=2)
    assert await oldest() == (None, None, None)


async def test_marked_jobs_are_among_the_oldest(store: Store, clock: ManualClock) -> None:
    """Jobs that a claim by age has looked at and left count in their own lane like all others."""
    start = clock.now_us()
    await store.insert([new_job() for _ in range(2)])
    await store.settle([retry(job, delay_s=number + 1) for number, job in enumerate((await claim(store)).jobs)])
    await store.insert([new_job(delay_s=3), new_job(delay_s=4), new_job(delay_s=60)])
    clock.advance(5)
    [first] = (await claim(store, fifo(), total=1)).jobs
    [queue] = (await store.stats()).queues
    assert first.due_us == start + us(1)
    assert (queue.fresh_oldest_us, queue.retry_oldest_us, queue.next_due_us) == (start + us(3), start + us(2), start + us(60))
    assert (queue.fresh_ready, queue.fresh_later, queue.retry_ready, queue.retry_later) == (2, 1, 1, 0)


async def test_running_retries_are_counted_whatever_their_lease(store: Store, clock: ManualClock) -> None:
    """Of the jobs that are processed those of the retry lane are told apart, stuck or not, with a limit or without, queue by queue."""
    await store.insert([*(new_job() for _ in range(4)), *(grouped("r", fair="a") for _ in range(2))])
    await store.settle([retry(job) for job in (await claim(store, ask(), ask("r"), total=5)).jobs])
    brief = (await claim(store, lease_s=1, total=3)).jobs
    await claim(store, lease_s=60)
    await claim(store, ask("r"), ask("r", "retry", limits=(Slots(most=5),)))
    await store.insert([new_job()])
    await claim(store, ask())

    async def counted() -> list[tuple[int, int, int]]:
        return [(queue.processing, queue.stuck, queue.retries_running) for queue in (await store.stats()).queues]

    assert await counted() == [(5, 0, 4), (2, 0, 1)]
    clock.advance(2)
    assert await counted() == [(5, 3, 4), (2, 0, 1)]
    await store.settle([done(brief[0]), retry(brief[1])])
    assert await counted() == [(3, 1, 2), (2, 0, 1)]


async def test_counts_add_up_to_the_jobs(store: Store, clock: ManualClock) -> None:
    """Every stored job is counted exactly once (S9)."""
    await store.insert([new_job(f"q{number % 3}", delay_s=number % 2 * 50) for number in range(30)])
    jobs = (await claim(store, *(ask(f"q{number}") for number in range(3)), total=12)).jobs
    ends = [done, failed, retry, cancelled]
    await store.settle([ends[number % 4](job) for number, job in enumerate(jobs[:8])])
    state = await full_state(store)
    total = sum(
        one.fresh_ready + one.fresh_later + one.retry_ready + one.retry_later + one.processing + one.done + one.failed + one.cancelled
        for one in state["stats"].queues
    )
    assert total == len(state["jobs"]) == 30


async def test_a_job_that_moves_while_it_is_counted_is_counted_once(store: Store) -> None:
    """Figures are of one moment: who is claimed and put back, again and again, is in exactly one place of each answer."""
    await store.insert([new_job() for _ in range(5)])
    await store.settle([retry(job) for job in (await claim(store)).jobs])
    counting = True

    async def move() -> None:
        while counting:
            await store.settle([retry(job) for job in (await claim(store, ask(lane="retry"))).jobs])

    async def counted() -> set[int]:
        seen = set()
        for _ in range(60):
            [queue] = (await store.stats()).queues
            seen.add(queue.retry_ready + queue.processing)
        return seen

    mover = asyncio.create_task(move())
    try:
        assert await counted() == {5}
    finally:
        counting = False
        await mover
