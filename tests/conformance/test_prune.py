from __future__ import annotations

from collections.abc import Callable

import pytest

from mulligan.core.change import Change
from mulligan.core.clock import ManualClock
from mulligan.core.contract import Store
from mulligan.core.errors import UsageError
from mulligan.core.job import Status
from tests.builders import (
    all_jobs,
    cancelled,
    claim,
    claim_one,
    done,
    failed,
    full_state,
    get,
    new_job,
    put_and_claim,
    requeue,
    retry,
    us,
)

ENDS: list[tuple[Status, Callable[..., Change]]] = [("done", done), ("failed", failed), ("cancelled", cancelled)]


@pytest.mark.parametrize("status, end", ENDS)
async def test_prune_removes_jobs_that_rested_long_enough(
    store: Store, clock: ManualClock, status: Status, end: Callable[..., Change]
) -> None:
    """The age counts from the finish time, inclusive; younger jobs stay."""
    old = await put_and_claim(store)
    await store.settle([end(old)])
    clock.advance(1)
    young = await put_and_claim(store)
    await store.settle([end(young)])
    clock.advance(9)
    assert await store.prune(status, us(11), 100) == 0
    assert await store.prune(status, us(10), 100) == 1
    assert sorted(await all_jobs(store)) == [young.id]
    assert await store.prune(status, 0, 100) == 1
    assert await all_jobs(store) == {}


@pytest.mark.parametrize("status", ["pending", "processing"])
async def test_live_statuses_cannot_be_pruned(store: Store, clock: ManualClock, status: Status) -> None:
    """Asking to prune live jobs is refused, and nothing is removed."""
    await store.insert([new_job()])
    await put_and_claim(store, lease_s=1)
    clock.advance(1_000)
    with pytest.raises(UsageError):
        await store.prune(status, 0, 100)
    assert len(await all_jobs(store)) == 2


async def test_prune_never_removes_a_live_job(store: Store, clock: ManualClock) -> None:
    """Whatever is pruned, pending and processing jobs stay, however old; so do jobs of the other terminal statuses."""
    pending, running, later = new_job(), await put_and_claim(store, lease_s=1), new_job(delay_s=10**6)
    await store.insert([later])
    retried = await put_and_claim(store)
    await store.settle([retry(retried, delay_s=10**6)])
    await store.insert([pending])
    ended = {status: await put_and_claim(store) for status, _ in ENDS}
    await store.settle([end(ended[status]) for status, end in ENDS])
    clock.advance(10**5)
    for number, (status, _) in enumerate(ENDS, start=1):
        assert await store.prune(status, 0, 100) == 1
        assert len(await all_jobs(store)) == 7 - number
    assert sorted(await all_jobs(store)) == sorted([pending.id, running.id, later.id, retried.id])


async def test_prune_spares_a_requeued_job(store: Store, clock: ManualClock) -> None:
    """A failed job that an operator sent back is live again, and its rest starts anew when it fails again (92)."""
    job = await put_and_claim(store)
    await store.settle([failed(job)])
    clock.advance(100)
    await store.settle([requeue(await get(store, job.id))])
    assert await store.prune("failed", 0, 100) == 0
    await store.settle([failed(await claim_one(store))])
    clock.advance(50)
    assert await store.prune("failed", us(51), 100) == 0
    assert await store.prune("failed", us(50), 100) == 1


async def test_prune_takes_the_oldest_first_up_to_the_limit(store: Store, clock: ManualClock) -> None:
    """A bounded number goes at a time, those that finished first."""
    ids = [(await put_and_claim(store)).id for _ in range(5)]
    for job_id in (ids[3], ids[0], ids[4], ids[1], ids[2]):
        await store.settle([done(await get(store, job_id))])
        clock.advance(1)
    assert await store.prune("done", 0, 2) == 2
    assert sorted(await all_jobs(store)) == sorted([ids[4], ids[1], ids[2]])
    assert await store.prune("done", 0, 0) == 0
    assert await store.prune("done", 0, 10) == 3
    assert await store.prune("done", 0, 10) == 0


async def test_history_goes_with_its_job(store: Store) -> None:
    """A pruned job leaves nothing behind: its id starts again with an empty history."""
    job = await put_and_claim(store)
    await store.settle([retry(job)])
    await store.settle([failed(await claim_one(store))])
    assert await store.prune("failed", 0, 10) == 1
    assert await store.get([job.id]) == [None]
    [answer] = await store.insert([new_job(id=job.id)])
    assert answer.created
    row = await get(store, job.id)
    assert (row.history, row.fence, row.status) == ((), 0, "pending")


async def test_a_pruned_job_is_missing_to_everyone(store: Store) -> None:
    """Settle, cancel and a repeated claim of a pruned job say so and do no harm."""
    await store.insert([new_job()])
    [job] = (await claim(store, claim_id="c-1")).jobs
    await store.settle([done(job)])
    await store.prune("done", 0, 10)
    [verdict] = await store.settle([done(job)])
    assert (verdict.applied, verdict.reason) == (False, "missing")
    assert await store.request_cancel([job.id]) == ["missing"]
    assert (await claim(store, claim_id="c-1")).jobs == []


async def test_prune_of_nothing_changes_nothing(store: Store) -> None:
    """An empty prune leaves the state as it is."""
    await store.insert([new_job()])
    before = await full_state(store)
    for status, _ in ENDS:
        assert await store.prune(status, 0, 100) == 0
    assert await full_state(store) == before
