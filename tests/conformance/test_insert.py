from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from mulligan.core.clock import ManualClock
from mulligan.core.contract import Store
from tests.builders import all_jobs, cancelled, claim, claim_one, done, failed, fresh_id, full_state, get, new_job, put_and_claim, us


async def test_new_job_is_pending_fresh_and_due_now(store: Store, clock: ManualClock) -> None:
    """A new job gets its times from the store's clock, the fresh lane and all counters at zero."""
    job = new_job("billing", task="charge", priority=2, max_retries=None)
    [answer] = await store.insert([job])
    now = clock.now_us()
    assert (answer.id, answer.created, answer.at_us) == (job.id, True, now)
    row = await get(store, job.id)
    assert (row.queue, row.task, row.payload, row.policy, row.priority, row.max_retries) == (
        "billing",
        "charge",
        job.payload,
        "{}",
        2,
        None,
    )
    assert (row.status, row.lane, row.generation, row.fence) == ("pending", "fresh", 1, 0)
    assert (row.attempts, row.failures, row.crashes, row.snoozes, row.releases) == (0, 0, 0, 0, 0)
    assert row.run_at_us == row.created_at_us == row.updated_at_us == row.due_first_us == row.read_at_us == now
    assert (row.finished_at_us, row.lease_owner, row.lease_expires_at_us, row.claim_id, row.settle_id) == (None,) * 5
    assert (row.last_delay_us, row.last_error, row.result_json, row.cancel_requested, row.history) == (None, None, None, False, ())


async def test_delay_counts_from_the_stores_clock(store: Store, clock: ManualClock) -> None:
    """A delay is added to the store's now, and the job first falls due then."""
    job = new_job(delay_s=60.5)
    await store.insert([job])
    row = await get(store, job.id)
    assert row.run_at_us == row.due_first_us == clock.now_us() + us(60.5)
    assert row.created_at_us == clock.now_us()


@pytest.mark.parametrize("offset_s", [-3_600, 0, 3_600])
async def test_eta_is_stored_as_given_and_wins_over_the_delay(store: Store, clock: ManualClock, offset_s: int) -> None:
    """An absolute time is not moved, also when it lies in the past, and the delay beside it is ignored."""
    eta = clock.now_us() + us(offset_s)
    job = new_job(eta_us=eta, delay_s=5)
    await store.insert([job])
    row = await get(store, job.id)
    assert row.run_at_us == row.due_first_us == eta


async def test_answers_stand_in_the_order_of_the_jobs(store: Store) -> None:
    """Each answer of a batch belongs to the job at its place."""
    jobs = [new_job(f"q{number % 3}") for number in range(50)]
    jobs.reverse()
    assert [answer.id for answer in await store.insert(jobs)] == [job.id for job in jobs]


async def test_empty_insert_does_nothing(store: Store) -> None:
    """No jobs, no answers, no change."""
    before = await full_state(store)
    assert await store.insert([]) == []
    assert await full_state(store) == before


async def test_repeated_insert_changes_nothing_and_answers_as_the_first_time(store: Store, clock: ManualClock) -> None:
    """A repeat after an unknown outcome is told that the job was created, and the stored job stays as it was."""
    job = new_job()
    await store.insert([job])
    before = await get(store, job.id)
    clock.advance(5)
    [answer] = await store.insert([new_job(id=job.id, payload='{"args":[9],"kwargs":{}}', priority=1)])
    assert (answer.id, answer.created) == (job.id, True)
    after = await get(store, job.id)
    assert (after.payload, after.priority, after.run_at_us, after.updated_at_us) == (
        before.payload,
        0,
        before.run_at_us,
        before.updated_at_us,
    )


async def test_repeated_insert_of_a_finished_job_does_not_run_it_again(store: Store) -> None:
    """An id is known for as long as its job is stored, whatever the job's status."""
    job = await put_and_claim(store)
    await store.settle([done(job)])
    [answer] = await store.insert([new_job(id=job.id)])
    assert answer.created
    assert (await get(store, job.id)).status == "done"
    assert (await claim(store)).jobs == []


async def test_the_same_id_twice_in_a_batch_is_one_job(store: Store) -> None:
    """The second copy of a job in one batch is a repeat of the first."""
    job = new_job()
    assert [answer.created for answer in await store.insert([job, job])] == [True, True]
    assert len(await all_jobs(store)) == 1


async def test_the_same_id_twice_in_a_batch_whose_key_is_taken(store: Store) -> None:
    """Neither copy of a job is stored if its key has an owner, in the store or in the batch."""
    owner, job = new_job(unique_key="k"), new_job(unique_key="k")
    answers = await store.insert([owner, job, job])
    assert [(answer.id, answer.created) for answer in answers] == [(owner.id, True), (owner.id, False), (owner.id, False)]
    assert [(answer.id, answer.created) for answer in await store.insert([job, job])] == [(owner.id, False)] * 2
    assert list(await all_jobs(store)) == [owner.id]


async def test_the_same_id_twice_in_a_batch_with_a_key_that_is_taken_and_without(store: Store) -> None:
    """The first copy meets the owner of its key, the second is stored; each answer is of its own moment."""
    owner, job = new_job(unique_key="k"), new_job(unique_key="k")
    await store.insert([owner])
    answers = await store.insert([job, replace(job, unique_key=None)])
    assert [(answer.id, answer.created) for answer in answers] == [(owner.id, False), (job.id, True)]


async def test_taken_unique_key_answers_the_owner(store: Store) -> None:
    """A second job of a live unique key is not stored; its caller gets the first one's id."""
    first, second = new_job(unique_key="invoice:1"), new_job(unique_key="invoice:1")
    await store.insert([first])
    [answer] = await store.insert([second])
    assert (answer.id, answer.created) == (first.id, False)
    assert await store.get([second.id]) == [None]


async def test_unique_key_within_one_batch(store: Store) -> None:
    """Of two new jobs of one batch with the same key, the second gets the first; the rest of the batch is stored."""
    first, second, other = new_job(unique_key="k"), new_job(unique_key="k"), new_job()
    answers = await store.insert([first, second, other])
    assert [(answer.id, answer.created) for answer in answers] == [(first.id, True), (first.id, False), (other.id, True)]
    assert sorted(await all_jobs(store)) == sorted([first.id, other.id])


async def test_unique_key_belongs_to_its_queue(store: Store) -> None:
    """The same key in another queue is another key, and jobs without a key never meet."""
    jobs = [new_job("a", unique_key="k"), new_job("b", unique_key="k"), new_job("a"), new_job("a")]
    assert [answer.created for answer in await store.insert(jobs)] == [True] * 4


async def test_repeat_of_the_owner_itself_is_created(store: Store) -> None:
    """The id is looked at before the key: the owner's own repeat looks like its first call."""
    job = new_job(unique_key="k")
    await store.insert([job])
    [answer] = await store.insert([job])
    assert (answer.id, answer.created) == (job.id, True)


async def test_unique_key_is_held_while_processing_and_free_when_finished(store: Store) -> None:
    """The key is owned through pending and processing, and free again after done, failed and cancelled."""
    for end in (done, failed, cancelled):
        job = await put_and_claim(store, unique_key="k")
        [answer] = await store.insert([new_job(unique_key="k")])
        assert (answer.id, answer.created) == (job.id, False)
        await store.settle([end(job)])
        follower = new_job(unique_key="k")
        [answer] = await store.insert([follower])
        assert (answer.id, answer.created) == (follower.id, True)
        assert await store.request_cancel([follower.id]) == ["cancelled"]


async def test_unique_key_is_free_after_a_cancel_at_once(store: Store) -> None:
    """Cancelling a pending job frees its key."""
    first, second = new_job(unique_key="k"), new_job(unique_key="k")
    await store.insert([first])
    await store.request_cancel([first.id])
    [answer] = await store.insert([second])
    assert (answer.id, answer.created) == (second.id, True)


async def test_many_inserts_at_once_of_one_key_make_one_job(store: Store) -> None:
    """Concurrent callers with the same key all get the same job, and exactly one of them made it."""
    batches = await asyncio.gather(*(store.insert([new_job(unique_key="k")]) for _ in range(20)))
    answers = [answer for batch in batches for answer in batch]
    assert sum(answer.created for answer in answers) == 1
    assert len({answer.id for answer in answers}) == 1
    assert len(await all_jobs(store)) == 1


async def test_insert_from_many_threads_and_loops_at_once(store: Store) -> None:
    """A store is usable from any event loop in any thread; no insert is lost and none disturbs another."""

    async def produce(ids: list[str]) -> int:
        made = 0
        for job_id in ids:
            [answer] = await store.insert([new_job(id=job_id)])
            made += answer.created
        return made

    parts = [[fresh_id() for _ in range(25)] for _ in range(4)]
    # Each thread runs a loop of its own, while this test's loop stays in use as well.
    counts = await asyncio.gather(
        produce([fresh_id() for _ in range(25)]), *(asyncio.to_thread(asyncio.run, produce(part)) for part in parts)
    )
    assert counts == [25] * 5
    rows = await all_jobs(store)
    assert len(rows) == 125
    assert {job_id for part in parts for job_id in part} <= set(rows)


async def test_claim_and_insert_from_two_loops_hand_each_job_out_once(store: Store) -> None:
    """Claimers on different event loops never share a job."""
    await store.insert([new_job() for _ in range(60)])

    async def take() -> list[str]:
        taken: list[str] = []
        while jobs := (await claim(store, total=3)).jobs:
            taken += [job.id for job in jobs]
        return taken

    shares = await asyncio.gather(take(), *(asyncio.to_thread(asyncio.run, take()) for _ in range(3)))
    taken = [job_id for share in shares for job_id in share]
    assert len(taken) == len(set(taken)) == 60


async def test_a_job_inserted_is_claimed_as_it_is_stored(store: Store) -> None:
    """What a claim returns is the stored row, without its history."""
    await store.insert([new_job(tags=("a", "b"), timeout_us=7, max_age_us=8)])
    job = await claim_one(store)
    assert job == await get(store, job.id)
