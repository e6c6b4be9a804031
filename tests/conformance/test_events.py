from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from mulligan.core.change import Change
from mulligan.core.clock import ManualClock
from mulligan.core.contract import Store
from mulligan.core.events import EVENT_LOG_MAX, Event, events_of
from tests.builders import (
    all_events,
    cancelled,
    change,
    claim_one,
    crash,
    done,
    failed,
    get,
    put_and_claim,
    release,
    requeue,
    retry,
    snooze,
)


async def test_recorded_events_are_read_back_with_a_rising_place(store: Store, clock: ManualClock) -> None:
    """The log keeps every field and gives each event its place, from 1 on."""
    events = [
        Event(
            kind="WORKER_STARTED",
            at_us=clock.now_us(),
            worker="w-1",
            detail={"queues": ["a", "b"], "pid": 4711, "share": 0.5, "none": None, "text": "ä😀\n"},
        ),
        Event(kind="LEASE_LOST", at_us=clock.now_us() + 1, job_id="j", queue="q", task="t", worker="w", fence=7, attempt=3),
        Event(kind="WORKER_STOPPED", at_us=clock.now_us() + 2, worker="w-1"),
    ]
    await store.record_events(events)
    assert await store.read_events(0, 10) == [replace(event, seq=number) for number, event in enumerate(events, start=1)]


async def test_reading_goes_on_after_a_place(store: Store) -> None:
    """`after_seq` and `limit` page through the log, oldest first."""
    await store.record_events([Event(kind="WORKER_STARTED", at_us=number) for number in range(5)])
    assert [event.seq for event in await store.read_events(0, 2)] == [1, 2]
    assert [event.seq for event in await store.read_events(2, 2)] == [3, 4]
    assert [event.seq for event in await store.read_events(4, 2)] == [5]
    assert await store.read_events(5, 2) == []
    assert await store.read_events(0, 0) == []
    await store.record_events([])
    assert await store.read_events(5, 2) == []


async def test_log_is_bounded_to_the_newest(store: Store) -> None:
    """Beyond EVENT_LOG_MAX the oldest go; places are never given twice."""
    for start in range(0, EVENT_LOG_MAX + 50, 2_010):
        await store.record_events([Event(kind="WORKER_STARTED", at_us=number) for number in range(start, start + 2_010)])
    events = await all_events(store)
    assert len(events) == EVENT_LOG_MAX
    assert [event.seq for event in events] == list(range(51, EVENT_LOG_MAX + 51))
    assert events[-1].at_us == EVENT_LOG_MAX + 49


SETTLEMENTS: list[tuple[Callable[..., Change], list[str]]] = [
    (done, []),
    (release, []),
    (retry, ["FAILED", "RETRY_SCHEDULED"]),
    (failed, ["FAILED"]),
    (snooze, ["SNOOZED"]),
    (cancelled, ["CANCELLED"]),
]


@pytest.mark.parametrize("end, kinds", SETTLEMENTS)
async def test_settling_logs_the_kinds_worth_keeping(store: Store, end: Callable[..., Change], kinds: list[str]) -> None:
    """Failures, retries, snoozes and cancels go to the log in their order; what succeeds or is released does not (P04, P09)."""
    job = await put_and_claim(store, queue="billing", task="charge")
    settlement = end(job, why="because")
    [verdict] = await store.settle([settlement])
    events = await all_events(store)
    assert [event.kind for event in events] == kinds
    expected = [event for event in events_of(settlement, verdict) if event.kind in kinds]
    assert [replace(event, seq=0) for event in events] == expected


async def test_crashes_are_logged(store: Store, clock: ManualClock) -> None:
    """A crash that is retried and a last one leave their own events."""
    job = await put_and_claim(store, lease_s=1)
    clock.advance(1)
    await store.settle([crash(job)])
    job = await claim_one(store, lease_s=1)
    clock.advance(1)
    await store.settle([crash(job, status="failed")])
    assert [event.kind for event in await all_events(store)] == ["CRASHED", "RETRY_SCHEDULED", "CRASHED", "FAILED"]


async def test_requeue_is_logged_with_its_operator(store: Store) -> None:
    """The log says who sent a job back, under which generation (S5)."""
    job = await put_and_claim(store)
    await store.settle([failed(job)])
    await store.settle([requeue(await get(store, job.id), by="ann")])
    [_, event] = await all_events(store)
    assert (event.kind, event.detail["by"], event.detail["generation"]) == ("REQUEUED", "ann", 2)


async def test_cancel_that_wins_is_logged_as_cancelled(store: Store) -> None:
    """The log tells what was written, not what was asked for."""
    job = await put_and_claim(store)
    await store.request_cancel([job.id])
    await store.settle([retry(job)])
    assert [event.kind for event in await all_events(store)] == ["CANCELLED"]


async def test_refused_holder_is_logged_as_a_lost_lease(store: Store, clock: ManualClock) -> None:
    """A stale worker's settlement leaves LEASE_LOST for all to see; a refused sweeper or operator leaves nothing."""
    job = await put_and_claim(store, lease_s=1)
    clock.advance(1)
    await store.settle([crash(job, delay_s=5)])
    known = len(await all_events(store))
    await store.settle([crash(job), requeue(job)])
    assert len(await all_events(store)) == known
    await store.settle([done(job)])
    event = (await all_events(store))[-1]
    assert (event.kind, event.job_id, event.fence) == ("LEASE_LOST", job.id, 1)
    assert (event.detail["wanted"], event.detail["reason"]) == ("done", "stale")


async def test_a_repeat_is_not_logged_again(store: Store) -> None:
    """A settlement that was applied before leaves no second event (C16)."""
    job = await put_and_claim(store)
    settlement = failed(job)
    await store.settle([settlement])
    await store.settle([settlement, settlement])
    assert [event.kind for event in await all_events(store)] == ["FAILED"]


async def test_events_of_a_batch_stand_in_the_order_of_its_changes(store: Store) -> None:
    """One job's events stay together, jobs follow the batch."""
    jobs = [await put_and_claim(store) for _ in range(3)]
    await store.settle([retry(jobs[2]), change(jobs[0], "timeout", "failed"), snooze(jobs[1])])
    assert [(event.kind, event.job_id) for event in await all_events(store)] == [
        ("FAILED", jobs[2].id),
        ("RETRY_SCHEDULED", jobs[2].id),
        ("FAILED", jobs[0].id),
        ("SNOOZED", jobs[1].id),
    ]


@pytest.mark.parametrize("detail", [{}, {"a": {"b": [1, 2, {"c": "\U0001f600"}]}}, {"$where": 1, "a.b": "''", "": None}])
async def test_detail_round_trips(store: Store, detail: dict[str, Any]) -> None:
    """An event's detail is any plain JSON object."""
    await store.record_events([Event(kind="WORKER_STARTED", at_us=1, detail=detail)])
    [event] = await store.read_events(0, 1)
    assert event.detail == detail


async def test_a_retry_without_a_record_tells_when_it_runs(store: Store) -> None:
    """The time of the next run is known from the change, whatever else comes with it."""
    job = await put_and_claim(store)
    [verdict] = await store.settle([retry(job, 5, record=None)])
    [told] = [event for event in await all_events(store) if event.kind == "RETRY_SCHEDULED"]
    assert told.detail["run_at_us"] == verdict.run_at_us


@pytest.mark.parametrize(
    ("after", "limit", "many"), [(0, 2**63 - 1, 8), (5, 2**63 - 1, 3), (2**63 - 2, 1, 0), (2, 0, 0), (-5, 3, 3), (3, -1, 0)]
)
async def test_places_and_limits_may_be_anything(store: Store, after: int, limit: int, many: int) -> None:
    """A place far behind the end has nothing behind it, one before the beginning everything; a limit beyond the log is the whole of it."""
    await store.record_events([Event(kind="QUEUE_PAUSED", at_us=1) for _ in range(8)])
    assert len(await store.read_events(after, limit)) == many
