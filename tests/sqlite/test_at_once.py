"""Which batches SQLite writes at once, that it writes nothing of other outcomes if one is refused, and the entries of its log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from mulligan.core.change import Change, Verdict
from mulligan.core.errors import StoreError
from mulligan.core.events import EVENT_LOG_MAX, Event
from mulligan.core.job import Job
from mulligan.stores.sqlite import SQLiteStore
from mulligan.stores.sqlite.at_once import ready
from mulligan.stores.sqlite.eventlog import ENTRY_MAX
from tests.builders import TEXT_ERROR, all_events, claim, crash, done, get, new_job, put_and_claim, release, retry
from tests.conformance.ends import EVERY_END, claimed


async def at_once(store: SQLiteStore, changes: Sequence[Change]) -> list[Verdict] | None:
    """The verdicts of a batch that could be written without judging each change."""
    batch = ready(changes)
    if batch is None:
        return None
    return batch.verdicts(store._clock.now_us()) if await store._write(batch.write) else None


async def test_any_outcomes_of_held_jobs_are_written_at_once(store: SQLiteStore) -> None:
    """All of them, and the resting ones are counted."""
    jobs = await claimed(store, len(EVERY_END))
    verdicts = await at_once(store, [end(job) for end, job in zip(EVERY_END, jobs, strict=True)])
    assert verdicts is not None
    assert [verdict.status for verdict in verdicts] == [(await get(store, job.id)).status for job in jobs]
    assert [(queue.done, queue.failed, queue.cancelled) for queue in (await store.stats()).queues] == [(2, 1, 1)]


async def _given_back(store: SQLiteStore, job: Job) -> None:
    await store.settle([release(job)])


async def _to_be_cancelled(store: SQLiteStore, job: Job) -> None:
    await store.request_cancel([job.id])


@pytest.mark.parametrize("happens", [_given_back, _to_be_cancelled])
async def test_of_outcomes_that_leave_records_all_are_written_or_none(
    store: SQLiteStore, happens: Callable[[SQLiteStore, Job], Any]
) -> None:
    """Rows, records and events: whoever looks finds everything as it was, but for a success."""
    good, bad, success = await claimed(store, 3)
    await happens(store, bad)
    events = await all_events(store)
    assert await at_once(store, [retry(good, 5), retry(bad, 5), done(success)]) is None
    assert [(await get(store, job.id)).status for job in (good, success)] == ["processing", "done"]
    assert (await get(store, good.id)).history == ()
    assert await all_events(store) == events


@pytest.mark.parametrize("batch", ["the same job twice", "a takeover", "a crash with its time", "nothing"])
async def test_what_has_to_be_looked_at_is_not_tried(store: SQLiteStore, batch: str) -> None:
    """A change may depend on the one before it, or on more than a fence, and an event may tell a time."""
    [job] = await claimed(store, 1)
    batches = {
        "the same job twice": [retry(job), done(job)],
        "a takeover": [crash(job)],
        "a crash with its time": [crash(job, guard=done(job).guard)],
        "nothing": [],
    }
    assert ready(batches[batch]) is None


async def test_the_log_is_read_from_the_middle_of_an_entry(store: SQLiteStore) -> None:
    """Each event has a place of its own, whatever it was written with, and every page begins and ends where it was asked to."""
    jobs = await claimed(store, 5)
    await store.record_events([Event(kind="WORKER_STARTED", at_us=7)])
    await store.settle([retry(job, delay) for delay, job in enumerate(jobs)])
    await store.record_events([Event(kind="WORKER_STOPPED", at_us=number) for number in range(2)])
    events = await store.read_events(0, 100)
    assert [event.seq for event in events] == list(range(1, 14))
    assert [event.kind for event in events] == ["WORKER_STARTED", *["FAILED", "RETRY_SCHEDULED"] * 5, *["WORKER_STOPPED"] * 2]
    for limit in (1, 2, 3, 5, 12):
        for after in range(13):
            assert await store.read_events(after, limit) == events[after : after + limit]
    now_us = store._clock.now_us()
    assert [event.detail["run_at_us"] - now_us for event in events if event.kind == "RETRY_SCHEDULED"] == [
        number * 1_000_000 for number in range(5)
    ]


async def test_the_bound_of_the_log_may_lie_within_an_entry(store: SQLiteStore) -> None:
    """The newest EVENT_LOG_MAX are shown, and entries whose events are all beyond it are forgotten before long."""
    for _ in range(EVENT_LOG_MAX // 700 + 3):
        await store.record_events([Event(kind="WORKER_STARTED", at_us=1) for _ in range(700)])
    last = (EVENT_LOG_MAX // 700 + 3) * 700
    events = await store.read_events(0, 2 * EVENT_LOG_MAX)
    assert [event.seq for event in events] == list(range(last - EVENT_LOG_MAX + 1, last + 1))
    [kept] = await store._read(lambda t: t.row("SELECT sum(seq - before_seq) FROM mulligan_events"))
    assert EVENT_LOG_MAX <= kept <= EVENT_LOG_MAX + 700 + ENTRY_MAX


async def test_a_damaged_part_of_an_entry_hides_no_other(store: SQLiteStore) -> None:
    """What can be decoded is shown."""
    await store.record_events([Event(kind="WORKER_STARTED", at_us=number) for number in range(3)])
    await store._write(lambda t: t.run('UPDATE mulligan_events SET body = replace(body, \'"at_us":1\', \'"at_us":"?"\')'))
    assert [event.seq for event in await store.read_events(0, 10)] == [1, 3]
    await store._write(lambda t: t.run('UPDATE mulligan_events SET body = \'[["retried"], ["odd", 1, 2], 5, \' || substr(body, 2)'))
    assert [event.at_us for event in await store.read_events(0, 10)][:1] == [0]


async def test_a_damaged_entry_does_not_end_a_reader(store: SQLiteStore) -> None:
    """A page shorter than what was lost is not empty, which would tell a reader that nothing follows; and a damaged row moves no place."""
    await store.insert([new_job() for _ in range(30)])
    await store.settle([retry(job, 5) for job in (await claim(store, total=30)).jobs])
    await store.set_queue("q", paused=True)
    await store._write(lambda t: t.run("UPDATE mulligan_events SET body = json_replace(body, '$[0][14]', 'x') WHERE seq = 60"))
    assert [event.seq for event in await store.read_events(0, 2)] == [3, 4]
    await store._write(lambda t: t.run("UPDATE mulligan_events SET body = 'x' WHERE seq = 60"))
    assert [(event.kind, event.seq) for event in await store.read_events(0, 2)] == [("QUEUE_PAUSED", 61)]


@pytest.mark.parametrize(
    ("end", "changed"),
    [
        (retry, {"error": replace(TEXT_ERROR, message="a\ud800b")}),
        (retry, {"settle_id": "\ud800"}),
        (done, {"settle_id": "\ud800"}),
        (retry, {"attempts": 2**70}),
        (done, {"attempts": 2**70}),
    ],
)
async def test_what_cannot_be_stored_is_refused_by_the_store(
    store: SQLiteStore, end: Callable[..., Change], changed: dict[str, Any]
) -> None:
    """A text or a number that no file takes is an error of the store's, whichever thread meets it; and nothing is written."""
    job = await put_and_claim(store)
    with pytest.raises(StoreError):
        await store.settle([replace(end(job), **changed)])
    assert (await get(store, job.id)).status == "processing"
