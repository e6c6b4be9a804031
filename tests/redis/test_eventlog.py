"""The log as a stream: one entry for each script, numbers without gaps, and nothing blocked by what was done to its keys by hand."""

from __future__ import annotations

import msgspec
import pytest

from mulligan.core.clock import ManualClock
from mulligan.core.events import EVENT_LOG_MAX, Event, events_of
from mulligan.stores.redis import RedisStore
from tests.builders import all_events, claim, new_job, retry
from tests.redis.keys import command


async def failed(store: RedisStore, jobs: int) -> list[Event]:
    """Settles a batch of failures; the events that its worker publishes."""
    await store.insert([new_job() for _ in range(jobs)])
    changes = [retry(job, 5) for job in (await claim(store, total=jobs)).jobs]
    verdicts = await store.settle(changes)
    return [event for change, verdict in zip(changes, verdicts, strict=True) for event in events_of(change, verdict)]


async def test_a_batch_is_one_entry_and_reads_as_it_was_published(store: RedisStore, clock: ManualClock) -> None:
    """What a reader finds is what the worker's own subscribers heard, and a page may begin and end within an entry."""
    published = [event for event in await failed(store, 30) if event.kind != "LOCK_RELEASE"]
    clock.advance(1)
    published += [event for event in await failed(store, 1) if event.kind != "LOCK_RELEASE"]
    assert await command(store, "XLEN", "{}events") == 2
    found = await all_events(store)
    assert [(event.kind, event.job_id, event.at_us, event.detail) for event in found] == [
        (event.kind, event.job_id, event.at_us, event.detail) for event in published
    ]
    assert [event.seq for event in found] == list(range(1, 63))
    assert [event.seq for event in await store.read_events(7, 5)] == [8, 9, 10, 11, 12]
    assert [event.seq for event in await store.read_events(57, 100)] == [58, 59, 60, 61, 62]


async def test_old_entries_go(store: RedisStore) -> None:
    """A reader sees the newest events up to the bound, and what no reader can see is removed but for the rest of one entry."""
    for _ in range(11):
        await store.record_events([Event(kind="QUEUE_PAUSED", at_us=number) for number in range(1_000)])
    await store.record_events([Event(kind="QUEUE_PAUSED", at_us=1)])
    found = await store.read_events(0, EVENT_LOG_MAX)
    assert (found[0].seq, found[-1].seq, len(found)) == (1_002, 11_001, EVENT_LOG_MAX)
    assert await command(store, "XLEN", "{}events") == 11


async def test_a_number_that_was_removed_is_found_again(store: RedisStore) -> None:
    """Failures are settled all the same, and numbers go on behind the newest event."""
    await failed(store, 3)
    await command(store, "DEL", "{}seq")
    await failed(store, 1)
    assert [event.seq for event in await all_events(store)] == list(range(1, 9))


async def test_a_log_that_was_emptied_begins_again(store: RedisStore) -> None:
    """Without the number and without entries there is nothing to go on from; what is written then is there."""
    await store.record_events([Event(kind="QUEUE_PAUSED", at_us=1)] * 9)
    await command(store, "XTRIM", "{}events", "MAXLEN", 0)
    await command(store, "DEL", "{}seq")
    assert len(await failed(store, 1)) == 3
    assert [event.kind for event in await all_events(store)] == ["FAILED", "RETRY_SCHEDULED"]


async def test_a_damaged_entry_does_not_end_a_reader(store: RedisStore) -> None:
    """Pages shorter than what was lost are not empty, which would tell a reader that nothing follows."""
    for many in (1, 30, 1):
        await store.record_events([Event(kind="QUEUE_PAUSED", at_us=1)] * many)
    await command(store, "DEL", "{}events")
    event = msgspec.msgpack.encode([(Event(kind="QUEUE_PAUSED", at_us=1), None, None)])
    for seq, entry in ((1, event), (31, b"\xc1"), (32, event)):
        await command(store, "XADD", "{}events", str(seq), "at", "0", "events", entry)
    assert [found.seq for found in await store.read_events(0, 10)] == [1]
    assert [found.seq for found in await store.read_events(1, 10)] == [32]
    assert await store.read_events(32, 10) == []


@pytest.mark.parametrize("fields", [("a", "b"), ("at", "soon", "events", "b")])
async def test_foreign_entries_are_passed_over(store: RedisStore, fields: tuple[str, ...]) -> None:
    """What somebody else put into the stream is no event, and no error either."""
    await store.record_events([Event(kind="QUEUE_PAUSED", at_us=1)])
    await command(store, "XADD", "{}events", "2", *fields)
    await store.record_events([Event(kind="QUEUE_RESUMED", at_us=1)])
    assert [event.kind for event in await all_events(store)] == ["QUEUE_PAUSED", "QUEUE_RESUMED"]
