"""The documents in which MongoDB keeps the log of events: numbers without gaps, whoever writes and however much."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import AutoReconnect

from mulligan.core.events import EVENT_LOG_MAX, Event
from mulligan.stores.mongo import MongoStore, eventlog, from_url
from tests.builders import all_events, ask, claim, new_job, retry
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


class Cut:
    """Stands before one method of a collection: the wire breaks in its first calls, before or after the server has done them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, method: str, collection: str, times: int, *, is_late: bool) -> None:
        self.left = times
        real = getattr(AsyncCollection, method)

        async def call(this: AsyncCollection[Any], *arguments: Any, **named: Any) -> Any:
            if this.name != collection or not self.left:
                return await real(this, *arguments, **named)
            self.left -= 1
            if is_late:
                await real(this, *arguments, **named)
            raise AutoReconnect("connection reset")

        monkeypatch.setattr(AsyncCollection, method, call)


@pytest.mark.parametrize("is_late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("method", "collection"), [("update_one", "mulligan_events"), ("bulk_write", "mulligan_jobs")])
async def test_a_settle_that_is_repeated_tells_its_events_once(
    store: MongoStore, monkeypatch: pytest.MonkeyPatch, method: str, collection: str, is_late: bool
) -> None:
    """Wherever its wire broke: the repeat finds the jobs written, and the log without their events or with them."""
    await store.insert([new_job() for _ in range(3)])
    jobs = (await claim(store, ask(), total=3)).jobs
    cut = Cut(monkeypatch, method, collection, 1, is_late=is_late)
    verdicts = await store.settle([retry(job, 1) for job in jobs])
    assert cut.left == 0
    assert all(verdict.applied for verdict in verdicts)
    told = [event.job_id for event in await all_events(store) if event.kind == "FAILED"]
    assert sorted(told) == sorted(job.id for job in jobs)


@pytest.mark.parametrize("is_late", [False, True], ids=["before", "after"])
async def test_a_cancel_and_a_pause_that_are_repeated_are_told_once(
    store: MongoStore, monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    """The same for what operators do."""
    job = new_job()
    await store.insert([job])
    Cut(monkeypatch, "update_one", "mulligan_events", 1, is_late=is_late)
    assert await store.request_cancel([job.id]) == ["cancelled"]
    Cut(monkeypatch, "update_one", "mulligan_events", 1, is_late=is_late)
    await store.set_queue("q", paused=True)
    assert [event.kind for event in await all_events(store) if event.kind != "ENQUEUED"] == ["CANCELLED", "QUEUE_PAUSED"]


async def test_a_reader_at_the_end_reads_no_document(store: MongoStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who follows the log asks again and again, and mostly there is nothing new."""
    await store.record_events(batch("old", 900))
    real, asked = AsyncCollection.find, []

    def find(this: AsyncCollection[Any], *arguments: Any, **named: Any) -> Any:
        asked.append(arguments)
        return real(this, *arguments, **named)

    last = (await all_events(store))[-1].seq
    monkeypatch.setattr(AsyncCollection, "find", find)
    assert await store.read_events(last, 100) == []
    assert [one for one in asked if one[1:] == ({"events": 1},)] == []
    assert len(await store.read_events(last - 1, 100)) == 1
    assert len([one for one in asked if one[1:] == ({"events": 1},)]) == 1


async def test_a_reader_misses_nothing_that_is_added_behind_its_back(store: MongoStore, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last document is read, then grows and is closed, and the next one is read: what was added comes with the next call."""
    await store.record_events(batch("first", 50))
    last_read = 0
    real = AsyncCollection.find

    class Halting:
        """A cursor that hands out what it has read before the log grew, and then what came after."""

        def __init__(self, this: AsyncCollection[Any], arguments: Any) -> None:
            self._this, self._arguments = this, arguments

        def sort(self, *order: Any) -> Halting:
            self._order = order
            return self

        async def to_list(self) -> list[Any]:
            early = await real(self._this, *self._arguments).sort(*self._order).to_list()
            await store.record_events(batch("behind", 10))
            await store.record_events(batch("next", 1_000))
            late = await real(self._this, *self._arguments).sort(*self._order).to_list()
            return [*early, *(doc for doc in late if doc["_id"] > early[-1]["_id"])]

    def find(this: AsyncCollection[Any], *arguments: Any, **named: Any) -> Any:
        return Halting(this, arguments) if arguments[1:] == ({"events": 1},) else real(this, *arguments, **named)

    monkeypatch.setattr(AsyncCollection, "find", find)
    seen = await store.read_events(last_read, 5_000)
    monkeypatch.setattr(AsyncCollection, "find", real)
    while more := await store.read_events(seen[-1].seq, 5_000):
        seen += more
    assert [event.seq for event in seen] == list(range(1, 1_061))
