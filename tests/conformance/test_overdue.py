from __future__ import annotations

import asyncio

from mulligan.core.clock import ManualClock
from mulligan.core.contract import Store
from mulligan.core.job import Job
from tests.builders import claim, claim_one, crash, done, full_state, get, new_job, put_and_claim, release, retry, us


async def test_overdue_lists_leases_that_have_ended(store: Store, clock: ManualClock) -> None:
    """A lease ends at its very time, not before; only processing jobs are listed."""
    job = await put_and_claim(store, lease_s=10)
    await store.insert([new_job(), new_job(delay_s=99)])
    await store.settle([done(await claim_one(store, lease_s=1))])
    clock.advance(9.999999)
    assert await store.overdue(10) == []
    clock.advance(0.000001)
    [row] = await store.overdue(10)
    assert (row.id, row.status, row.fence, row.read_at_us, row.view) == (job.id, "processing", 1, clock.now_us(), "stuck")


async def test_overdue_takes_nothing_over(store: Store, clock: ManualClock) -> None:
    """Looking is free of effects: the job stays held until a guarded write."""
    await put_and_claim(store, lease_s=1)
    clock.advance(5)
    before = await full_state(store)
    assert len(await store.overdue(10)) == 1
    assert await full_state(store) == before


async def test_oldest_expiry_first_and_no_more_than_the_limit(store: Store, clock: ManualClock) -> None:
    """The job that has waited longest for its rescue comes first."""
    ids = [(await put_and_claim(store, lease_s=lease_s)).id for lease_s in (5, 2, 9, 3)]
    clock.advance(60)
    assert [job.id for job in await store.overdue(10)] == [ids[1], ids[3], ids[0], ids[2]]
    assert [job.id for job in await store.overdue(2)] == [ids[1], ids[3]]
    assert await store.overdue(0) == []


async def test_crash_goes_back_to_pending_with_its_count(store: Store, clock: ManualClock) -> None:
    """The takeover clears the lease, counts a crash and not a failure, and the attempt stays spent (A2, A11)."""
    job = await put_and_claim(store, lease_s=1)
    clock.advance(1)
    [verdict] = await store.settle([crash(job, delay_s=4)])
    assert (verdict.applied, verdict.status, verdict.run_at_us) == (True, "pending", clock.now_us() + us(4))
    row = await get(store, job.id)
    assert (row.lane, row.attempts, row.crashes, row.failures) == ("retry", 1, 1, 0)
    assert (row.lease_owner, row.lease_expires_at_us, row.claim_id) == (None, None, None)
    assert [one.outcome for one in row.history] == ["crash"]


async def test_last_crash_is_terminal(store: Store, clock: ManualClock) -> None:
    """A crash may also end the job for good."""
    job = await put_and_claim(store, lease_s=1)
    clock.advance(1)
    await store.settle([crash(job, status="failed")])
    row = await get(store, job.id)
    assert (row.status, row.crashes, row.finished_at_us) == ("failed", 1, clock.now_us())
    assert await store.overdue(10) == []


async def test_takeover_before_the_lease_ends_is_refused(store: Store, clock: ManualClock) -> None:
    """The guard Lapsed needs the expiry on the store's clock."""
    job = await put_and_claim(store, lease_s=10)
    clock.advance(9.999999)
    [verdict] = await store.settle([crash(job)])
    assert (verdict.applied, verdict.reason, verdict.status) == (False, "not lapsed", "processing")
    clock.advance(0.000001)
    [verdict] = await store.settle([crash(job)])
    assert verdict.applied


async def test_takeover_of_a_newer_claim_is_refused(store: Store, clock: ManualClock) -> None:
    """A sweeper that looked long ago does not take the next run's job, though that one has lapsed too."""
    old = await put_and_claim(store, lease_s=1)
    await store.settle([release(old)])
    await claim_one(store, lease_s=1)
    clock.advance(5)
    [verdict] = await store.settle([crash(old)])
    assert (verdict.applied, verdict.reason, verdict.fence) == (False, "stale", 2)


async def test_holder_that_finishes_first_wins_against_the_sweep(store: Store, clock: ManualClock) -> None:
    """A late success before the sweep's write counts, and the sweep is refused."""
    job = await put_and_claim(store, lease_s=1)
    clock.advance(5)
    [seen] = await store.overdue(1)
    first, second = await store.settle([done(job), crash(seen)])
    assert (first.applied, second.applied, second.reason) == (True, False, "stale")
    assert (await get(store, job.id)).crashes == 0


async def test_two_sweepers_have_the_effect_of_one(store: Store, clock: ManualClock) -> None:
    """Two sweepers that saw the same job settle it once (M13)."""
    await put_and_claim(store, lease_s=1)
    clock.advance(2)
    [first_view], [second_view] = await store.overdue(5), await store.overdue(5)
    [first] = await store.settle([crash(first_view)])
    [second] = await store.settle([crash(second_view)])
    assert (first.applied, second.applied, second.reason) == (True, False, "stale")
    row = await get(store, first_view.id)
    assert (row.crashes, len(row.history)) == (1, 1)


async def test_any_number_of_sweepers_has_the_effect_of_one(store: Store, clock: ManualClock) -> None:
    """Eight sweepers at once over thirty lapsed jobs: each job is charged one crash (M13, S22)."""
    await store.insert([new_job() for _ in range(30)])
    await claim(store, lease_s=1)
    clock.advance(2)

    async def sweep() -> int:
        verdicts = await store.settle([crash(job) for job in await store.overdue(20)])
        return sum(verdict.applied for verdict in verdicts)

    applied = sum(await asyncio.gather(*(sweep() for _ in range(8))))
    while swept := await sweep():
        applied += swept
    assert applied == 30
    jobs: list[Job] = (await claim(store)).jobs
    assert [(job.crashes, job.attempts, job.fence) for job in jobs] == [(1, 2, 2)] * 30


async def test_release_and_lapse_at_random_until_each_has_three_fences(store: Store, clock: ManualClock) -> None:
    """Jobs given back in different ways are claimed again under fences 1, 2, 3, one holder at a time."""
    await store.insert([new_job() for _ in range(12)])
    for round_number in (1, 2, 3):
        jobs = (await claim(store, lease_s=1)).jobs
        assert [job.fence for job in jobs] == [round_number] * 12
        clock.advance(1)
        ways = [release, crash, retry]
        await store.settle([ways[(number + round_number) % 3](job) for number, job in enumerate(jobs)])
