from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from mulligan.core.change import Change
from mulligan.core.clock import ManualClock
from mulligan.core.contract import Store
from mulligan.core.job import Job
from tests.builders import cancelled, claim_one, done, failed, fifo, full_state, get, new_job, put_and_claim, requeue, retry, us


async def dead_letter(store: Store, **fields: Any) -> Job:
    """A job that has failed for good."""
    job = await put_and_claim(store, **fields)
    await store.settle([failed(job)])
    return await get(store, job.id)


async def test_requeue_sends_a_failed_job_back_under_a_new_generation(store: Store, clock: ManualClock) -> None:
    """Counters start anew in the retry lane; fence, history and error trail stay (P07, C14)."""
    dead = await dead_letter(store)
    clock.advance(100)
    [verdict] = await store.settle([requeue(dead, delay_s=2)])
    assert (verdict.applied, verdict.status, verdict.run_at_us) == (True, "pending", clock.now_us() + us(2))
    row = await get(store, dead.id)
    assert (row.status, row.lane, row.generation, row.fence) == ("pending", "retry", 2, 1)
    assert (row.attempts, row.failures, row.crashes) == (0, 0, 0)
    assert (row.finished_at_us, row.run_at_us, row.due_first_us) == (None, clock.now_us() + us(2), clock.now_us() + us(2))
    assert [one.outcome for one in row.history] == ["failure", "requeue"]
    clock.advance(2)
    assert (await claim_one(store)).fence == 2


async def test_requeue_raced_by_two_operators(store: Store) -> None:
    """Two operators who read the same generation: one wins, the other is refused and starts nothing twice."""
    dead = await dead_letter(store)
    answers = await asyncio.gather(*(store.settle([requeue(dead, by=who)]) for who in ("ann", "bob", "cem", "dee")))
    verdicts = [verdict for [verdict] in answers]
    assert sorted(verdict.applied for verdict in verdicts) == [False, False, False, True]
    assert {verdict.reason for verdict in verdicts if not verdict.applied} == {"not failed"}
    row = await get(store, dead.id)
    assert (row.generation, len(row.history)) == (2, 2)


async def test_requeue_repeated_by_the_same_request(store: Store) -> None:
    """The same request id answers applied again, also while the job is already running."""
    dead = await dead_letter(store)
    request = requeue(dead)
    await store.settle([request])
    before = await full_state(store)
    [again] = await store.settle([request])
    assert (again.applied, again.status) == (True, "pending")
    assert await full_state(store) == before
    await claim_one(store)
    [later] = await store.settle([request])
    assert (later.applied, later.status, later.fence) == (True, "processing", 2)


async def test_requeue_of_an_older_generation_is_refused(store: Store) -> None:
    """A decision made before the last requeue does not count for the job that failed again since."""
    dead = await dead_letter(store)
    await store.settle([requeue(dead)])
    await store.settle([failed(await claim_one(store))])
    [verdict] = await store.settle([requeue(dead)])
    assert (verdict.applied, verdict.reason, verdict.status) == (False, "not failed", "failed")


@pytest.mark.parametrize("end", [done, cancelled, retry])
async def test_requeue_is_only_for_failed_jobs(store: Store, end: Callable[..., Change]) -> None:
    """Done, cancelled and pending jobs stay as they are (C3)."""
    job = await put_and_claim(store)
    await store.settle([end(job)])
    row = await get(store, job.id)
    before = await full_state(store)
    [verdict] = await store.settle([requeue(row)])
    assert (verdict.applied, verdict.reason, verdict.status) == (False, "not failed", row.status)
    assert await full_state(store) == before


async def test_requeue_of_a_running_job_is_refused(store: Store) -> None:
    """A job that runs right now is not sent back under its holder's feet."""
    job = await put_and_claim(store)
    [verdict] = await store.settle([requeue(job)])
    assert (verdict.applied, verdict.reason, verdict.status) == (False, "not failed", "processing")


async def test_requeue_is_refused_while_another_job_owns_the_unique_key(store: Store) -> None:
    """At most one live job per key: the requeue waits until the key is free again."""
    dead = await dead_letter(store, unique_key="k")
    owner = new_job(unique_key="k")
    await store.insert([owner])
    before = await full_state(store)
    [verdict] = await store.settle([requeue(dead)])
    assert (verdict.applied, verdict.reason, verdict.status) == (False, "unique key taken", "failed")
    assert await full_state(store) == before
    await store.settle([done(await claim_one(store))])
    [verdict] = await store.settle([requeue(dead)])
    assert (verdict.applied, verdict.status) == (True, "pending")


async def test_requeued_job_owns_its_unique_key_again(store: Store) -> None:
    """After the requeue a new job of the key gets the requeued one."""
    dead = await dead_letter(store, unique_key="k")
    await store.settle([requeue(dead)])
    [answer] = await store.insert([new_job(unique_key="k")])
    assert (answer.id, answer.created) == (dead.id, False)


async def test_two_dead_jobs_of_one_key_requeued_in_one_batch(store: Store) -> None:
    """Of two failed jobs with the same key only the first comes back."""
    first, second = await dead_letter(store, unique_key="k"), await dead_letter(store, unique_key="k")
    verdicts = await store.settle([requeue(first), requeue(second)])
    assert [(verdict.applied, verdict.reason) for verdict in verdicts] == [(True, ""), (False, "unique key taken")]


async def test_idempotency_key_is_new_with_the_generation(store: Store) -> None:
    """A requeued job is a new unit of work for its handler, all attempts of a generation are the same one."""
    dead = await dead_letter(store)
    await store.settle([requeue(dead)])
    job = await claim_one(store)
    assert job.idempotency_key != dead.idempotency_key
    await store.settle([retry(job)])
    assert (await claim_one(store)).idempotency_key == job.idempotency_key


async def test_fifo_places_a_requeued_job_by_its_creation(store: Store, clock: ManualClock) -> None:
    """Creation time does not change with the generation."""
    dead = await dead_letter(store)
    clock.advance(1)
    younger = new_job()
    await store.insert([younger])
    await store.settle([requeue(dead)])
    claimed = await store.claim("c-1", "me", [fifo()], 2, us(30))
    assert [job.id for job in claimed.jobs] == [dead.id, younger.id]
