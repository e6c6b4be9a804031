from __future__ import annotations

from mulligan.core.change import Grip
from mulligan.core.clock import ManualClock
from mulligan.core.contract import Renewal, Store
from tests.builders import claim, claim_one, crash, done, fresh_id, full_state, get, grip, new_job, put_and_claim, release, us


async def test_renewal_lengthens_the_lease_from_now(store: Store, clock: ManualClock) -> None:
    """The new end is the store's now plus the lease, whatever was left; nothing else changes."""
    job = await put_and_claim(store, lease_s=30)
    clock.advance(10)
    assert await store.renew([grip(job)], us(20)) == [Renewal(job_id=job.id, fence=1, held=True, cancel_requested=False)]
    row = await get(store, job.id)
    assert row.lease_expires_at_us == clock.now_us() + us(20)
    assert row.updated_at_us == job.updated_at_us
    assert (row.fence, row.attempts, row.lease_owner, row.claim_id) == (job.fence, job.attempts, job.lease_owner, job.claim_id)


async def test_expired_but_not_taken_over_can_be_renewed(store: Store, clock: ManualClock) -> None:
    """A slow holder that nobody replaced keeps its job."""
    job = await put_and_claim(store, lease_s=1)
    clock.advance(100)
    [answer] = await store.renew([grip(job)], us(30))
    assert answer.held
    assert await store.overdue(10) == []


async def test_renewal_keeps_a_long_job_from_being_taken(store: Store, clock: ManualClock) -> None:
    """A job that is renewed in time never shows up as overdue (M10, A9)."""
    job = await put_and_claim(store, lease_s=30)
    for _ in range(20):
        clock.advance(20)
        assert await store.overdue(10) == []
        [answer] = await store.renew([grip(job)], us(30))
        assert answer.held
    assert (await get(store, job.id)).fence == 1


async def test_stale_grips_are_refused_and_change_nothing(store: Store, clock: ManualClock) -> None:
    """An old or future fence, a finished job, a pending job and a missing one are not held (S4)."""
    old = await put_and_claim(store)
    await store.settle([release(old)])
    held = await claim_one(store)
    finished = await put_and_claim(store)
    await store.settle([done(finished)])
    pending = new_job(delay_s=60)
    await store.insert([pending])
    before = await full_state(store)
    grips = [grip(old), Grip(held.id, held.fence + 1), grip(finished), Grip(pending.id, 0), Grip(fresh_id(), 1)]
    answers = await store.renew(grips, us(500))
    assert [(answer.job_id, answer.fence, answer.held) for answer in answers] == [(one.job_id, one.fence, False) for one in grips]
    assert await full_state(store) == before


async def test_mixed_batch_renews_what_is_held(store: Store, clock: ManualClock) -> None:
    """One refused grip does not keep the others from being renewed; answers stand in the order of the grips."""
    await store.insert([new_job() for _ in range(3)])
    first, second, third = (await claim(store)).jobs
    await store.settle([done(second)])
    clock.advance(5)
    answers = await store.renew([grip(third), grip(second), grip(first)], us(30))
    assert [(answer.job_id, answer.held) for answer in answers] == [(third.id, True), (second.id, False), (first.id, True)]
    assert {(await get(store, job.id)).lease_expires_at_us for job in (first, third)} == {clock.now_us() + us(30)}


async def test_renewal_is_by_grip_never_by_owner(store: Store, clock: ManualClock) -> None:
    """A claim whose reply was lost must lapse: the owner's renewals of other jobs do not keep it alive."""
    await store.insert([new_job(), new_job()])
    known, lost = (await claim(store, owner="me", lease_s=30)).jobs
    clock.advance(29)
    await store.renew([grip(known)], us(30))
    clock.advance(1)
    assert [job.id for job in await store.overdue(10)] == [lost.id]


async def test_renewal_tells_of_a_cancel(store: Store) -> None:
    """A cancel request reaches the holder with its next renewal (S20)."""
    await store.insert([new_job(), new_job()])
    first, second = (await claim(store)).jobs
    await store.request_cancel([second.id])
    answers = await store.renew([grip(first), grip(second)], us(30))
    assert [(answer.held, answer.cancel_requested) for answer in answers] == [(True, False), (True, True)]


async def test_renewal_wins_against_a_sweep_under_way(store: Store, clock: ManualClock) -> None:
    """A renewal between the sweeper's look and its write keeps the job: the takeover needs the expiry too."""
    job = await put_and_claim(store, lease_s=1)
    clock.advance(2)
    [seen] = await store.overdue(10)
    await store.renew([grip(job)], us(30))
    [verdict] = await store.settle([crash(seen)])
    assert (verdict.applied, verdict.reason, verdict.status, verdict.fence) == (False, "not lapsed", "processing", 1)
    row = await get(store, job.id)
    assert (row.status, row.crashes, row.history) == ("processing", 0, ())
    [verdict] = await store.settle([done(job)])
    assert verdict.applied


async def test_renewal_after_a_takeover_is_refused(store: Store, clock: ManualClock) -> None:
    """Once the sweep has taken the job, its old holder is told on every call."""
    job = await put_and_claim(store, lease_s=1)
    clock.advance(2)
    await store.settle([crash(job)])
    [answer] = await store.renew([grip(job)], us(30))
    assert not answer.held
    [verdict] = await store.settle([done(job)])
    assert (verdict.applied, verdict.reason, verdict.status) == (False, "stale", "pending")


async def test_empty_renewal_does_nothing(store: Store) -> None:
    """No grips, no answers."""
    assert await store.renew([], us(30)) == []
