"""A batch that all ends as planned is written in a shorter way than one of which something does not hold. Nobody can tell."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mulligan.core.clock import ManualClock
from mulligan.core.contract import Store
from mulligan.core.groups import group_of
from mulligan.core.job import Job
from tests.builders import LEASE_S, ask, crash, failed, fresh_id, get, new_job, release, retry, us
from tests.conformance.ends import EVERY_END, SLY, claimed

TIMES = ("run_at_us", "created_at_us", "updated_at_us", "finished_at_us", "due_first_us", "due_us", "read_at_us")


@pytest.mark.parametrize("is_grouped", [False, True])
async def test_a_refused_change_makes_no_difference_to_the_others(store: Store, clock: ManualClock, is_grouped: bool) -> None:
    """Rows, histories and events of all kinds of outcomes, with the time of the write and texts as they were given; and what waits again is
    claimed when it is due, also where it waits in a group."""
    whole = await settled(store, clock, "whole", is_whole=True, is_grouped=is_grouped)
    assert await settled(store, clock, "other", is_whole=False, is_grouped=is_grouped) == whole
    rows, _, events = whole
    assert [row["status"] for row in rows] == ["done", "done", "pending", "pending", "failed", "pending", "pending", "cancelled"]
    assert rows[2]["last_error"].message == rows[2]["history"][0].error.message == SLY
    assert [event[0] for event in events] == ["FAILED", "RETRY_SCHEDULED"] * 2 + ["FAILED", "SNOOZED", "CANCELLED"]
    stats = await store.stats()
    assert [(queue.done, queue.failed, queue.cancelled) for queue in stats.queues] == [(2, 1, 1)] * 2
    clock.advance(60)
    for queue in ("whole", "other"):
        again = await store.claim(fresh_id(), "me", [ask(queue, lane="retry"), ask(queue)], 10, us(LEASE_S))
        assert [(job.lane, job.failures, job.snoozes) for job in again.jobs] == [("retry", 1, 0)] * 2 + [("fresh", 0, 1), ("fresh", 0, 0)]


async def settled(
    store: Store, clock: ManualClock, queue: str, *, is_whole: bool, is_grouped: bool
) -> tuple[list[Any], list[Any], list[Any]]:
    """What becomes of one job for each end: rows, verdicts and events, with what differs from one batch to the next taken off."""
    fields = {"group": group_of("tenant", "stripe", None, None), "fair_key": "tenant"} if is_grouped else {}
    jobs = await claimed(store, len(EVERY_END), queue, **fields)
    clock.advance(1)
    changes = [end(job) for end, job in zip(EVERY_END, jobs, strict=True)]
    verdicts = (await store.settle(changes if is_whole else [*changes, crash(jobs[0])]))[: len(changes)]
    assert [(verdict.applied, verdict.at_us) for verdict in verdicts] == [(True, clock.now_us())] * len(verdicts)
    found = [await get(store, job.id) for job in jobs]
    assert [job.run_at_us for job in found] == [verdict.run_at_us for verdict in verdicts]
    places = {job.id: place for place, job in enumerate(jobs)}
    events = [event for event in await store.read_events(0, 1_000) if event.job_id in places]
    return (
        [plain(job, clock.now_us()) for job in found],
        [(verdict.status, verdict.fence, verdict.reason) for verdict in verdicts],
        [
            (event.kind, places[event.job_id], event.at_us - clock.now_us(), event.worker, event.attempt, sooner(event.detail, clock))
            for event in events
        ],
    )


def plain(job: Job, now_us: int) -> dict[str, Any]:
    """A row without its names, and with times counted from now."""
    row = {name: getattr(job, name) for name in job.__struct_fields__ if name not in ("id", "queue", "claim_id", "settle_id")}
    row["history"] = [msgspec.structs.replace(one, ended_at_us=one.ended_at_us - now_us, started_at_us=None) for one in job.history]
    return {name: value - now_us if name in TIMES and value is not None else value for name, value in row.items()}


def sooner(detail: dict[str, Any], clock: ManualClock) -> dict[str, Any]:
    """What an event tells, the time of a retry counted from now."""
    return detail | {"run_at_us": detail["run_at_us"] - clock.now_us()} if "run_at_us" in detail else detail


async def _taken_over(store: Store, job: Job) -> None:
    await store.settle([release(job)])
    await store.claim(fresh_id(), "other", [ask()], 10, us(LEASE_S))


async def _to_be_cancelled(store: Store, job: Job) -> None:
    await store.request_cancel([job.id])


@pytest.mark.parametrize("happens, ends_as", [(_taken_over, "processing"), (_to_be_cancelled, "cancelled")])
async def test_one_that_does_not_end_as_planned_leaves_the_others_alone(store: Store, happens: Any, ends_as: str) -> None:
    """They are written once, with one record each, however often the batch is repeated."""
    jobs = await claimed(store, 3)
    await happens(store, jobs[1])
    changes = [retry(jobs[0], 5), retry(jobs[1], 5), failed(jobs[2])]
    first = await store.settle(changes)
    assert [verdict.status for verdict in first] == ["pending", ends_as, "failed"]
    events = await store.read_events(0, 1_000)
    again = await store.settle(changes)
    assert [(verdict.applied, verdict.status, verdict.run_at_us) for verdict in again] == [
        (verdict.applied, verdict.status, verdict.run_at_us) for verdict in first
    ]
    assert {event.kind for event in (await store.read_events(0, 1_000))[len(events) :]} <= {"LEASE_LOST"}
    assert [len((await get(store, job.id)).history) for job in (jobs[0], jobs[2])] == [1, 1]


async def test_a_whole_batch_that_is_repeated_is_known(store: Store) -> None:
    """After an answer that was lost the same batch answers the same, and writes nothing more."""
    jobs = await claimed(store, len(EVERY_END))
    changes = [end(job) for end, job in zip(EVERY_END, jobs, strict=True)]
    first, events = await store.settle(changes), await store.read_events(0, 1_000)
    again = await store.settle(changes)
    assert [(one.applied, one.status, one.fence, one.run_at_us) for one in again] == [
        (one.applied, one.status, one.fence, one.run_at_us) for one in first
    ]
    assert await store.read_events(0, 1_000) == events
    assert [len((await get(store, job.id)).history) for job in jobs] == [0, 0, 1, 1, 1, 1, 1, 1]


async def test_what_ends_in_a_whole_batch_is_free_again(store: Store) -> None:
    """Unique keys of jobs that rest can be taken; those of jobs that wait cannot."""
    await store.insert([new_job(unique_key=key) for key in ("rests", "waits")])
    jobs = (await store.claim(fresh_id(), "me", [ask()], 2, us(LEASE_S))).jobs
    by_key = {job.unique_key: job for job in jobs}
    await store.settle([failed(by_key["rests"]), retry(by_key["waits"], 5)])
    answers = await store.insert([new_job(unique_key=key) for key in ("rests", "waits")])
    assert [answer.created for answer in answers] == [True, False]


async def test_fifty_records_of_a_long_life_are_kept(store: Store) -> None:
    """The oldest are dropped, also where whole batches write them."""
    [job] = await claimed(store, 1)
    for _ in range(52):
        await store.settle([retry(job)])
        [job] = (await store.claim(fresh_id(), "me", [ask(lane="retry")], 1, us(LEASE_S))).jobs
    assert [one.fence for one in (await get(store, job.id)).history] == list(range(3, 53))


async def test_jobs_of_a_batch_go_each_to_their_own_place(store: Store, clock: ManualClock) -> None:
    """Failures of jobs of several queues and priorities in one batch, some to wait and some not: each is claimed from where it belongs, and
    only when it is due."""
    places = [(queue, priority, delay_s) for delay_s in (0, 5) for priority in (0, 1) for queue in ("a", "b")]
    jobs = [new_job(queue, priority=priority) for queue, priority, _ in places]
    await store.insert(jobs)
    asks = {(queue, priority): ask(queue, lane=None, priority=priority) for queue in ("a", "b") for priority in (0, 1)}
    taken = {job.id: job for job in (await store.claim(fresh_id(), "me", list(asks.values()), 100, us(LEASE_S))).jobs}
    await store.settle([retry(taken[job.id], delay_s) for job, (_, _, delay_s) in zip(jobs, places, strict=True)])
    for delay_s in (0, 5):
        for (queue, priority), both_lanes in asks.items():
            found = (await store.claim(fresh_id(), "me", [msgspec.structs.replace(both_lanes, lane="retry")], 9, us(LEASE_S))).jobs
            assert [job.id for job in found] == [jobs[places.index((queue, priority, delay_s))].id]
        clock.advance(5)


@pytest.mark.parametrize("length", [1, 31, 32, 255, 256, 300])
async def test_the_name_of_a_settlement_comes_back_whatever_its_length(store: Store, length: int) -> None:
    """It is a caller's text. The next claim shows it as it was given."""
    [job] = await claimed(store, 1)
    await store.settle([retry(job, settle_id="x" * length)])
    [again] = (await store.claim(fresh_id(), "me", [ask(lane="retry")], 1, us(LEASE_S))).jobs
    assert again.settle_id == "x" * length
