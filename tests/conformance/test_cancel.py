from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from mulligan.core.change import Change
from mulligan.core.clock import ManualClock
from mulligan.core.contract import Store
from tests.builders import (
    all_events,
    cancelled,
    claim,
    crash,
    done,
    failed,
    fresh_id,
    full_state,
    get,
    new_job,
    put_and_claim,
    release,
    requeue,
    retry,
    snooze,
)


@pytest.mark.parametrize("delay_s", [0, 60])
async def test_pending_job_is_cancelled_at_once(store: Store, clock: ManualClock, delay_s: float) -> None:
    """A job that waits is cancelled by the request itself, and never starts."""
    job = new_job(delay_s=delay_s)
    await store.insert([job])
    clock.advance(1)
    assert await store.request_cancel([job.id]) == ["cancelled"]
    row = await get(store, job.id)
    assert (row.status, row.run_at_us, row.cancel_requested) == ("cancelled", None, True)
    assert row.finished_at_us == row.updated_at_us == clock.now_us()
    clock.advance(1_000)
    claimed = await claim(store)
    assert (claimed.jobs, claimed.next_due_us) == ([], None)


async def test_cancel_of_a_pending_job_is_logged(store: Store, clock: ManualClock) -> None:
    """The store's log tells of the cancel, once."""
    job = new_job("billing", task="charge")
    await store.insert([job])
    await store.request_cancel([job.id, job.id])
    [event] = await all_events(store)
    assert (event.kind, event.job_id, event.queue, event.task, event.at_us) == ("CANCELLED", job.id, "billing", "charge", clock.now_us())


async def test_cancel_of_a_cancelled_job_changes_nothing(store: Store, clock: ManualClock) -> None:
    """A repeat gets the same answer and leaves everything as it was."""
    job = new_job()
    await store.insert([job])
    await store.request_cancel([job.id])
    before = await full_state(store)
    assert await store.request_cancel([job.id]) == ["cancelled"]
    assert await full_state(store) == before


async def test_processing_job_is_asked_to_stop(store: Store, clock: ManualClock) -> None:
    """The holder keeps its job and its lease; the row remembers the request, and since when it runs."""
    job = await put_and_claim(store)
    clock.advance(1)
    assert await store.request_cancel([job.id, job.id]) == ["requested", "requested"]
    row = await get(store, job.id)
    assert (row.status, row.cancel_requested, row.fence) == ("processing", True, job.fence)
    assert (row.lease_expires_at_us, row.updated_at_us) == (job.lease_expires_at_us, job.updated_at_us)
    assert await all_events(store) == []


@pytest.mark.parametrize("end", [done, failed])
async def test_finished_job_cannot_be_cancelled(store: Store, end: Callable[..., Change]) -> None:
    """Done and failed stay what they are."""
    job = await put_and_claim(store)
    await store.settle([end(job)])
    before = await full_state(store)
    assert await store.request_cancel([job.id]) == ["finished"]
    assert await full_state(store) == before


async def test_answers_stand_in_the_order_of_the_ids(store: Store) -> None:
    """One call cancels many jobs in different states; an unknown id is missing."""
    processing, finished = await put_and_claim(store), await put_and_claim(store)
    await store.settle([done(finished)])
    pending = new_job()
    await store.insert([pending])
    ids = [fresh_id(), finished.id, pending.id, processing.id]
    assert await store.request_cancel(ids) == ["missing", "finished", "cancelled", "requested"]
    assert await store.request_cancel([]) == []


@pytest.mark.parametrize("back", [retry, snooze, release])
async def test_cancel_wins_over_every_way_back_to_pending(store: Store, clock: ManualClock, back: Callable[..., Change]) -> None:
    """A retry, snooze or release of a job whose cancel was requested writes cancelled, and the verdict says so."""
    job = await put_and_claim(store)
    await store.request_cancel([job.id])
    clock.advance(1)
    settlement = back(job, delay_s=5)
    [verdict] = await store.settle([settlement])
    assert (verdict.applied, verdict.status, verdict.run_at_us, verdict.reason) == (True, "cancelled", None, "")
    row = await get(store, job.id)
    assert (row.status, row.run_at_us, row.finished_at_us, row.lease_owner) == ("cancelled", None, clock.now_us(), None)
    assert (row.attempts, row.failures, row.snoozes, row.releases) == (
        settlement.attempts,
        settlement.failures,
        settlement.snoozes,
        settlement.releases,
    )
    clock.advance(60)
    assert (await claim(store)).jobs == []
    [again] = await store.settle([settlement])
    assert (again.applied, again.status) == (True, "cancelled")


async def test_cancel_wins_over_a_crash(store: Store, clock: ManualClock) -> None:
    """A lapsed job whose cancel was requested is cancelled by the sweep instead of being run again."""
    job = await put_and_claim(store, lease_s=1)
    await store.request_cancel([job.id])
    clock.advance(2)
    [verdict] = await store.settle([crash(job)])
    assert (verdict.applied, verdict.status) == (True, "cancelled")
    assert "CANCELLED" in [event.kind for event in await all_events(store)]


@pytest.mark.parametrize("end, status", [(done, "done"), (failed, "failed"), (cancelled, "cancelled")])
async def test_terminal_outcome_stands_despite_a_cancel(store: Store, end: Callable[..., Change], status: str) -> None:
    """Cancel only wins over a way back to pending: work that was finished is finished."""
    job = await put_and_claim(store)
    await store.request_cancel([job.id])
    [verdict] = await store.settle([end(job)])
    assert (verdict.applied, verdict.status) == (True, status)


async def test_requeue_forgets_an_old_cancel(store: Store) -> None:
    """An operator's requeue of a failed job overrides the cancel that came too late."""
    job = await put_and_claim(store)
    await store.request_cancel([job.id])
    await store.settle([failed(job)])
    [verdict] = await store.settle([requeue(await get(store, job.id))])
    assert (verdict.applied, verdict.status) == (True, "pending")
    assert not (await get(store, job.id)).cancel_requested


async def test_cancel_raced_by_claim_and_settle_has_one_winner(store: Store) -> None:
    """Whatever the order of a cancel and a claim, a confirmed cancel means no start."""
    for _ in range(10):
        job = new_job()
        await store.insert([job])
        [answer], claimed = await asyncio.gather(store.request_cancel([job.id]), claim(store))
        row = await get(store, job.id)
        if claimed.jobs:
            assert (answer, row.status, row.cancel_requested) == ("requested", "processing", True)
            await store.settle([release(claimed.jobs[0])])
        else:
            assert (answer, row.status) == ("cancelled", "cancelled")
        assert (await get(store, job.id)).status == "cancelled"
