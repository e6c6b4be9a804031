from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from mulligan.core.change import Change, Dead, Held, Lapsed
from mulligan.core.clock import ManualClock
from mulligan.core.contract import Store
from mulligan.core.errors import StoreRejected
from mulligan.core.job import ErrorInfo
from tests.builders import (
    TEXT_ERROR,
    cancelled,
    change,
    claim,
    claim_one,
    crash,
    done,
    failed,
    fresh_id,
    full_state,
    get,
    new_job,
    put_and_claim,
    record,
    release,
    requeue,
    retry,
    snooze,
    us,
)

ENDS: list[Callable[..., Change]] = [done, retry, failed, snooze, release, cancelled]


async def test_done_keeps_the_result_and_clears_the_lease(store: Store, clock: ManualClock) -> None:
    """A success is terminal: finish time set, result readable in the same read, owner and due time gone (S12, S19)."""
    job = await put_and_claim(store)
    clock.advance(3)
    [verdict] = await store.settle([done(job, '{"ok":true}', settle_id="s-1")])
    assert (verdict.job_id, verdict.applied, verdict.status) == (job.id, True, "done")
    assert (verdict.fence, verdict.run_at_us, verdict.reason, verdict.at_us) == (1, None, "", clock.now_us())
    row = await get(store, job.id)
    assert (row.status, row.result, row.settle_id) == ("done", {"ok": True}, "s-1")
    assert row.finished_at_us == row.updated_at_us == clock.now_us()
    assert (row.run_at_us, row.lease_owner, row.lease_expires_at_us, row.claim_id) == (None, None, None, None)
    assert (row.attempts, row.fence, row.history) == (1, 1, ())


async def test_retry_writes_count_time_lane_and_error_in_one_write(store: Store, clock: ManualClock) -> None:
    """A failure that is retried goes to pending in the retry lane, due after the delay on the store's clock (M07, W02, P04)."""
    job = await put_and_claim(store)
    clock.advance(1)
    [verdict] = await store.settle([retry(job, delay_s=12.5)])
    assert (verdict.applied, verdict.status, verdict.run_at_us) == (True, "pending", clock.now_us() + us(12.5))
    row = await get(store, job.id)
    assert (row.status, row.lane, row.attempts, row.failures, row.run_at_us) == ("pending", "retry", 1, 1, clock.now_us() + us(12.5))
    assert (row.finished_at_us, row.lease_owner, row.lease_expires_at_us, row.claim_id) == (None, None, None, None)
    assert (row.last_error, row.last_delay_us, row.updated_at_us) == (TEXT_ERROR, us(12.5), clock.now_us())
    assert row.due_first_us == row.created_at_us


async def test_hard_failure_is_terminal_and_in_neither_lane(store: Store, clock: ManualClock) -> None:
    """A failed job rests with its error, and no claim finds it (R03)."""
    job = await put_and_claim(store)
    await store.settle([failed(job)])
    row = await get(store, job.id)
    assert (row.status, row.run_at_us, row.finished_at_us, row.last_error) == ("failed", None, clock.now_us(), TEXT_ERROR)
    clock.advance(10_000)
    assert (await claim(store)).jobs == []


@pytest.mark.parametrize("give_back", [snooze, release])
async def test_snooze_and_release_refund_the_attempt_and_keep_the_lane(store: Store, give_back: Callable[..., Change]) -> None:
    """The counters of the change are written as they are: the attempt comes back, the fence does not."""
    job = await put_and_claim(store)
    await store.settle([retry(job)])
    job = await claim_one(store)
    await store.settle([give_back(job)])
    row = await get(store, job.id)
    assert (row.attempts, row.failures, row.fence, row.lane, row.status) == (1, 1, 2, "retry", "pending")
    assert row.snoozes + row.releases == 1


async def test_every_field_of_the_change_is_written(store: Store) -> None:
    """A change carries the full field set; nothing of the state before shines through."""
    job = await put_and_claim(store)
    await store.settle([retry(job, delay_s=0, result_json='"old"')])
    job = await claim_one(store)
    await store.settle(
        [
            change(
                job,
                "failure",
                "pending",
                delay_s=9,
                lane="fresh",
                attempts=11,
                failures=12,
                crashes=13,
                snoozes=14,
                releases=15,
                generation=16,
                last_delay_us=17,
                error=None,
                result_json=None,
            )
        ]
    )
    row = await get(store, job.id)
    assert (row.lane, row.attempts, row.failures, row.crashes, row.snoozes, row.releases) == ("fresh", 11, 12, 13, 14, 15)
    assert (row.generation, row.last_delay_us, row.last_error, row.result_json) == (16, 17, None, None)


@pytest.mark.parametrize("end", ENDS)
async def test_settle_under_an_old_fence_is_refused(store: Store, end: Callable[..., Change]) -> None:
    """A stale holder changes nothing once a newer run holds the job, and is told so (S4, A1, E2)."""
    stale = await put_and_claim(store)
    await store.settle([release(stale)])
    held = await claim_one(store)
    before = (await full_state(store))["jobs"]
    [verdict] = await store.settle([end(stale)])
    assert (verdict.applied, verdict.reason, verdict.status, verdict.fence) == (False, "stale", "processing", held.fence)
    assert (await full_state(store))["jobs"] == before


@pytest.mark.parametrize("result", [None, "7"])
async def test_a_stale_success_among_others_of_another_queue_is_refused(store: Store, result: str | None) -> None:
    """Successes may be written many at once without a look, those that are alike and others; each is guarded by its own fence all the
    same (S4, A1)."""
    fine = await put_and_claim(store, queue="other")
    stale = await put_and_claim(store)
    await store.settle([release(stale)])
    held = await claim_one(store)
    first, second = await store.settle([done(fine, result), done(stale)])
    assert (first.applied, second.applied, second.reason) == (True, False, "stale")
    row = await get(store, held.id)
    assert (row.status, row.fence) == ("processing", held.fence)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("ended", [done, failed, cancelled, retry, release])
async def test_settle_of_a_job_that_is_not_processing_is_refused(
    store: Store, end: Callable[..., Change], ended: Callable[..., Change]
) -> None:
    """A job that was settled cannot be settled again, though the fence is still the same: terminal is final (S5)."""
    job = await put_and_claim(store)
    await store.settle([ended(job)])
    before = (await full_state(store))["jobs"]
    [verdict] = await store.settle([end(job)])
    assert (verdict.applied, verdict.reason, verdict.status) == (False, "stale", before[job.id].status)
    assert verdict.run_at_us == before[job.id].run_at_us
    assert (await full_state(store))["jobs"] == before


async def test_settle_of_a_missing_job_is_refused(store: Store) -> None:
    """A job that is not there gives a refusal without a status, not an error."""
    job = await put_and_claim(store)
    ghost = change(job, "success", "done")
    ghosts = [replace(ghost, job_id=fresh_id(), guard=guard) for guard in (Held(1), Lapsed(1), Dead(1))]
    verdicts = await store.settle(ghosts)
    assert [(verdict.applied, verdict.reason, verdict.status) for verdict in verdicts] == [(False, "missing", None)] * 3
    assert [verdict.job_id for verdict in verdicts] == [ghost.job_id for ghost in ghosts]


async def test_settle_after_the_lease_has_ended_is_accepted(store: Store, clock: ManualClock) -> None:
    """Expired but not taken over is still held: the fence decides, not the clock."""
    job = await put_and_claim(store, lease_s=1)
    clock.advance(3_600)
    [verdict] = await store.settle([done(job)])
    assert (verdict.applied, verdict.status) == (True, "done")


async def test_equal_settle_id_answers_applied_again_and_writes_once(store: Store, clock: ManualClock) -> None:
    """A repeat after a lost reply is told that it was applied, and leaves history, events and times as they are (S24)."""
    job = await put_and_claim(store)
    settlement = retry(job, delay_s=5)
    [first] = await store.settle([settlement])
    before = await full_state(store)
    [second] = await store.settle([settlement])
    assert (second.applied, second.status, second.run_at_us, second.fence) == (True, "pending", first.run_at_us, 1)
    assert await full_state(store) == before
    clock.advance(1)
    [third] = await store.settle([settlement])
    assert (third.applied, third.run_at_us, third.at_us) == (True, first.run_at_us, clock.now_us())


@pytest.mark.parametrize("end", ENDS)
async def test_every_settlement_can_be_repeated(store: Store, end: Callable[..., Change]) -> None:
    """Whatever the outcome, the same change again is applied and changes nothing."""
    job = await put_and_claim(store)
    settlement = end(job)
    await store.settle([settlement])
    before = await full_state(store)
    verdicts = await store.settle([settlement, settlement])
    assert [verdict.applied for verdict in verdicts] == [True, True]
    assert await full_state(store) == before


async def test_repeat_after_the_next_claim_tells_the_present_state(store: Store) -> None:
    """The repeat of a settled retry is recognised while the next run holds the job, and does not disturb that run."""
    job = await put_and_claim(store)
    settlement = retry(job)
    await store.settle([settlement])
    held = await claim_one(store)
    [verdict] = await store.settle([settlement])
    assert (verdict.applied, verdict.status, verdict.fence, verdict.run_at_us) == (True, "processing", 2, None)
    assert replace(await get(store, job.id), history=()) == held


async def test_repeat_after_the_next_settlement_is_stale(store: Store) -> None:
    """Only the last settle_id is kept: an older repeat is refused, and nothing changes."""
    job = await put_and_claim(store)
    settlement = retry(job)
    await store.settle([settlement])
    await store.settle([done(await claim_one(store))])
    [verdict] = await store.settle([settlement])
    assert (verdict.applied, verdict.reason, verdict.status) == (False, "stale", "done")


async def test_other_settle_id_under_the_same_fence_is_refused(store: Store) -> None:
    """Two different outcomes of one run: the first counts, the second is stale (E9, A2)."""
    job = await put_and_claim(store)
    first, second = await store.settle([done(job), retry(job)])
    assert (first.applied, second.applied, second.reason, second.status) == (True, False, "stale", "done")
    row = await get(store, job.id)
    assert (row.status, row.failures) == ("done", 0)


async def test_concurrent_settlements_of_one_run_count_once(store: Store) -> None:
    """Of many outcomes of one run sent at once, exactly one is applied."""
    job = await put_and_claim(store)
    answers = await asyncio.gather(*(store.settle([retry(job, delay_s=number)]) for number in range(10)))
    assert sum(verdict.applied for [verdict] in answers) == 1
    row = await get(store, job.id)
    assert (row.failures, len(row.history)) == (1, 1)


async def test_mixed_batch_where_some_are_refused(store: Store, clock: ManualClock) -> None:
    """A refused change does not disturb its batch; verdicts stand in the order of the changes (W10)."""
    await store.insert([new_job() for _ in range(9)])
    jobs = (await claim(store)).jobs
    await store.settle([done(jobs[6])])
    await store.settle([release(jobs[7])])
    await claim(store)
    batch = [
        done(jobs[0], "1"),
        failed(jobs[6]),
        retry(jobs[1], delay_s=5),
        done(jobs[7]),
        failed(jobs[2]),
        crash(jobs[8]),
        snooze(jobs[3], delay_s=6),
        release(jobs[4]),
        cancelled(jobs[5]),
    ]
    verdicts = await store.settle(batch)
    assert [verdict.job_id for verdict in verdicts] == [one.job_id for one in batch]
    assert [(verdict.applied, verdict.status, verdict.reason) for verdict in verdicts] == [
        (True, "done", ""),
        (False, "done", "stale"),
        (True, "pending", ""),
        (False, "processing", "stale"),
        (True, "failed", ""),
        (False, "processing", "not lapsed"),
        (True, "pending", ""),
        (True, "pending", ""),
        (True, "cancelled", ""),
    ]
    rows = [await get(store, job.id) for job in jobs]
    assert [row.status for row in rows] == [
        "done",
        "pending",
        "failed",
        "pending",
        "pending",
        "cancelled",
        "done",
        "processing",
        "processing",
    ]
    assert rows[1].run_at_us == clock.now_us() + us(5)
    assert rows[3].run_at_us == clock.now_us() + us(6)
    assert rows[7].fence == 2


async def test_two_changes_of_one_job_in_a_batch_are_applied_in_order(store: Store) -> None:
    """A failure and the operator's requeue of the same job may stand in one batch: the second sees what the first wrote."""
    job = await put_and_claim(store)
    end, back = failed(job), requeue(job)
    verdicts = await store.settle([back, end, back])
    assert [verdict.applied for verdict in verdicts] == [False, True, True]
    row = await get(store, job.id)
    assert (row.status, row.generation) == ("pending", 2)


async def test_empty_settle_does_nothing(store: Store) -> None:
    """No changes, no verdicts."""
    assert await store.settle([]) == []


async def test_large_batch(store: Store) -> None:
    """A batch of a thousand outcomes is one call."""
    await store.insert([new_job() for _ in range(1_000)])
    jobs = (await claim(store, total=1_000)).jobs
    verdicts = await store.settle([done(job) if number % 2 else retry(job) for number, job in enumerate(jobs)])
    assert all(verdict.applied for verdict in verdicts)
    [queue] = (await store.stats()).queues
    assert (queue.done, queue.retry_ready, queue.processing) == (500, 500, 0)


async def test_history_record_is_appended_with_the_stores_end_time(store: Store, clock: ManualClock) -> None:
    """Each claim that did not simply succeed leaves one record, oldest first, never rewritten (S13, P04)."""
    job = await put_and_claim(store)
    clock.advance(2)
    await store.settle([retry(job, delay_s=3)])
    clock.advance(3)
    again = await claim_one(store)
    clock.advance(4)
    end = record(again, "timeout", None)
    await store.settle([change(again, "timeout", "failed", record=end)])
    row = await get(store, job.id)
    assert [(one.outcome, one.fence, one.attempt, one.delay_us) for one in row.history] == [
        ("failure", 1, 1, us(3)),
        ("timeout", 2, 2, None),
    ]
    assert [one.ended_at_us for one in row.history] == [clock.now_us() - us(7), clock.now_us()]
    assert [one.started_at_us for one in row.history] == [job.updated_at_us, again.updated_at_us]


async def test_history_keeps_the_newest_fifty_and_the_totals(store: Store) -> None:
    """The history is bounded; the counters on the job still know of every run."""
    job = await put_and_claim(store)
    for _ in range(55):
        await store.settle([retry(job)])
        job = await claim_one(store)
    row = await get(store, job.id)
    assert [one.fence for one in row.history] == list(range(6, 56))
    assert (row.failures, row.attempts, row.fence) == (55, 56, 56)


async def test_a_refused_change_leaves_no_record(store: Store) -> None:
    """History is written only by what was applied."""
    job = await put_and_claim(store)
    await store.settle([done(job)])
    await store.settle([retry(job), crash(job)])
    assert (await get(store, job.id)).history == ()


@pytest.mark.parametrize("guard_of", [Held, Lapsed])
async def test_fence_of_the_future_is_refused(store: Store, guard_of: type[Held | Lapsed], clock: ManualClock) -> None:
    """Only the very fence counts, not any that is high enough."""
    job = await put_and_claim(store, lease_s=1)
    clock.advance(2)
    [verdict] = await store.settle([done(job, guard=guard_of(job.fence + 1))])
    assert (verdict.applied, verdict.reason) == (False, "stale")


UNSTORABLE: dict[str, dict[str, Any]] = {
    "NUL in a message": {"error": ErrorInfo(type="E", message="a\0b")},
    "lone surrogate in a message": {"error": ErrorInfo(type="E", message="\ud800")},
    "NUL in a traceback": {"error": ErrorInfo(type="E", message="", traceback="\0")},
    "NUL in a code": {"error": ErrorInfo(type="E", message="", code="\0")},
    "endless message": {"error": ErrorInfo(type="E", message="x" * 1_000_000)},
    "lone surrogate in a result": {"result_json": '"\udfff"'},
    "NUL in a reason": {"why": "\0"},
}


@pytest.mark.parametrize("case", UNSTORABLE)
async def test_a_batch_with_an_unstorable_text_is_rejected_whole(store: Store, case: str) -> None:
    """A text that not every store can keep is refused by all alike, for good, and nothing of its batch is written."""
    await store.insert([new_job(), new_job()])
    first, second = (await claim(store)).jobs
    before = await full_state(store)
    culprit = replace(failed(second), **UNSTORABLE[case])
    with pytest.raises(StoreRejected) as caught:
        await store.settle([done(first), culprit])
    assert not caught.value.retryable
    assert await full_state(store) == before
    with pytest.raises(StoreRejected, match=second.id):
        await store.settle([culprit])
    [verdict] = await store.settle([done(first)])
    assert verdict.applied
