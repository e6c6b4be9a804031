"""The documents in which MongoDB keeps the log of events: numbers without gaps, whoever writes and however much."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import AutoReconnect

from mulligan.core.events import EVENT_LOG_MAX, Event
from mulligan.stores.mongo import MongoStore, eventlog, from_url
from tests.builders import all_events
from tests.mongo.conftest import Raw

SIZES = (1, 150, 60, 199, 200, 201, 3, 999, 1_000, 1_001, 2_500, 7)


def batch(name: str, size: int) -> list[Event]:
    """So many events, each of which tells its place in its batch."""
    return [Event(kind="QUEUE_PAUSED", at_us=number, queue=name) for number in range(size)]


async def test_batches_of_all_sizes_from_several_processes_leave_no_gap(store: MongoStore, url: str) -> None:
    """Each event once, numbers without gaps, and the order within a batch kept, though three write at once."""
    others = [from_url(url) for _ in range(2)]
    for other in others:
        await other.open()
    writers = [store, *others]

    async def write(writer: int) -> None:
        for place, size in enumerate(SIZES):
            await writers[writer].record_events(batch(f"{writer}-{place}", size))

    await asyncio.gather(*(write(writer) for writer in range(len(writers))))
    events = await all_events(store)
    total = min(EVENT_LOG_MAX, len(writers) * sum(SIZES))
    last = len(writers) * sum(SIZES)
    assert [event.seq for event in events] == list(range(last - total + 1, last + 1))
    for writer in range(len(writers)):
        for place, size in enumerate(SIZES):
            seen = [event.at_us for event in events if event.queue == f"{writer}-{place}"]
            assert seen == list(range(size - len(seen), size))
    for other in others:
        await other.close()


async def test_no_document_of_the_log_outgrows_the_server(store: MongoStore, raw: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long events are spread over documents by their length, not by their number alone."""
    monkeypatch.setattr(eventlog, "WIDE_CHARS_MAX", 250_000)
    await store.record_events([Event(kind="QUEUE_PAUSED", at_us=number, queue="q" * 900) for number in range(900)])
    sizes = [sum(map(len, doc["events"])) for doc in raw.mulligan_events.find()]
    assert max(sizes) <= 250_000
    assert [event.at_us for event in await all_events(store)] == list(range(900))


async def test_a_log_that_cannot_be_shortened_is_written_all_the_same(store: MongoStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old documents go with a later one; whoever wrote is not told of a failure, and so does not write again."""

    async def cut(*_: Any) -> None:
        raise AutoReconnect("connection reset")

    await store.record_events(batch("first", eventlog.SHARED_MAX))
    monkeypatch.setattr(AsyncCollection, "delete_many", cut)
    await store.record_events(batch("next", 2))
    assert len(await all_events(store)) == eventlog.SHARED_MAX + 2


async def test_a_writer_that_died_in_between_stops_nobody(store: MongoStore, raw: Raw) -> None:
    """The last document was closed and the next one not made: whoever comes next makes it."""
    await store.record_events(batch("before", 3))
    raw.mulligan_events.update_many({}, {"$set": {"closed": True}})
    await store.record_events(batch("after", 2))
    assert [(event.seq, event.queue) for event in await all_events(store)] == [
        *((seq, "before") for seq in (1, 2, 3)),
        *((seq, "after") for seq in (4, 5)),
    ]
