"""The inserts of one loop: through the store's thread at first, later over a connection of their own; and what becomes of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from mulligan import Mulligan
from mulligan.core.contract import Inserted
from mulligan.core.errors import IllegalMove
from mulligan.core.job import NewJob
from mulligan.stores.gather import GATHER_CHARS_MAX, Gatherer
from mulligan.stores.network.inserts import OFTEN, Direct, LoopInserts
from mulligan.stores.network.store import NetworkStore
from tests.builders import get, new_job
from tests.conftest import BACKENDS, url_of


class Ways:
    """Two ways to insert, and which of them were gone."""

    def __init__(self) -> None:
        self.gone: list[str] = []
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.inserts = LoopInserts(self._far, lambda: Direct(self._near, self._close, lambda jobs: len(jobs) < 3))

    async def _far(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        self.gone.append("far")
        return [Inserted(id=job.id, created=True, at_us=0) for job in jobs]

    async def _near(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        self.gone.append("near")
        await self.may_end.wait()
        return [Inserted(id=job.id, created=True, at_us=0) for job in jobs]

    async def _close(self) -> None:
        self.gone.append("close")


async def test_a_loop_that_goes_on_inserting_gets_a_connection() -> None:
    """The first ones cross to the store's thread; then all but those that are more than one statement go directly."""
    ways = Ways()
    for _ in range(OFTEN + 1):
        await ways.inserts.insert([new_job()])
    await ways.inserts.insert([new_job() for _ in range(3)])
    assert ways.gone == ["far"] * (OFTEN - 1) + ["near"] * 2 + ["far"]


async def test_large_payloads_are_not_gathered_without_bound() -> None:
    """What waits goes in several writes where its payloads are long: a server need not take all of them as one message."""
    chars: list[int] = []

    async def write(jobs: Sequence[NewJob]) -> list[Inserted]:
        chars.append(sum(len(job.payload) for job in jobs))
        await asyncio.sleep(0)
        return [Inserted(id=job.id, created=True, at_us=0) for job in jobs]

    gatherer = Gatherer(write)
    large = "x" * (GATHER_CHARS_MAX // 16)
    answers = await asyncio.gather(*(gatherer.insert([new_job(payload=large)]) for _ in range(100)))
    assert len(answers) == 100
    assert sum(chars) == 100 * len(large)
    assert max(chars) == GATHER_CHARS_MAX


async def test_callers_who_go_on_at_once_go_together() -> None:
    """Those who get their answers together and enqueue again are one write the next time, not one alone and the others behind him."""
    sizes: list[int] = []

    async def write(jobs: Sequence[NewJob]) -> list[Inserted]:
        sizes.append(len(jobs))
        await asyncio.sleep(0)
        return [Inserted(id=job.id, created=True, at_us=0) for job in jobs]

    gatherer = Gatherer(write)

    async def caller() -> None:
        for _ in range(4):
            await gatherer.insert([new_job()])

    await asyncio.gather(*(caller() for _ in range(10)))
    assert sum(sizes) == 40
    assert sizes[:4] == [1, 9, 10, 10]
    sizes.clear()
    await gatherer.insert([new_job()])  # nobody is under way any more
    assert sizes == [1]


async def test_two_writes_at_once_are_equally_wide() -> None:
    """While the store works on one, the callers of the other make their next jobs; nobody waits beside a way that is free."""
    sizes: list[int] = []
    under_way: list[int] = []

    async def write(jobs: Sequence[NewJob]) -> list[Inserted]:
        sizes.append(len(jobs))
        under_way.append(1)
        await asyncio.sleep(0.002)
        under_way.pop()
        return [Inserted(id=job.id, created=True, at_us=len(under_way)) for job in jobs]

    gatherer = Gatherer(write)
    gatherer.at_once = 2

    async def caller() -> list[int]:
        return [(await gatherer.insert([new_job()]))[0].at_us for _ in range(20)]

    beside = [one for found in await asyncio.gather(*(caller() for _ in range(40))) for one in found]
    assert sum(sizes) == 800
    assert max(beside) == 1  # two were under way, and never more
    settled = sizes[len(sizes) // 4 : -len(sizes) // 4]
    assert all(15 <= size <= 25 for size in settled), sizes
    sizes.clear()
    await asyncio.gather(*(caller() for _ in range(2)))
    assert sizes == [1] * 40  # two callers have a way each


async def test_each_way_carries_one_write_and_closing_waits_for_all() -> None:
    """Two connections of one loop: what overlaps goes over both, a third write through the store's thread."""
    gone: list[str] = []
    may_end = asyncio.Event()

    async def far(jobs: Sequence[NewJob]) -> list[Inserted]:
        gone.append("far")
        return [Inserted(id=job.id, created=True, at_us=0) for job in jobs]

    def connect() -> Direct:
        name = f"near {len(made)}"
        made.append(name)

        async def near(jobs: Sequence[NewJob]) -> list[Inserted]:
            gone.append(name)
            await may_end.wait()
            return [Inserted(id=job.id, created=True, at_us=0) for job in jobs]

        async def close() -> None:
            gone.append(f"close {name}")

        return Direct(near, close)

    made: list[str] = []
    inserts = LoopInserts(far, connect, 2)
    may_end.set()
    for _ in range(OFTEN):
        await inserts.insert([new_job()])
    assert gone == ["far"] * (OFTEN - 1) + ["near 0"]
    gone.clear()
    may_end.clear()
    writing = [asyncio.create_task(inserts.insert([new_job()])) for _ in range(3)]
    await asyncio.sleep(0.01)
    assert gone == ["near 0", "near 1"]
    closing = asyncio.create_task(inserts.close())
    await asyncio.sleep(0.01)
    assert not closing.done()
    may_end.set()
    assert [len(answers) for answers in await asyncio.gather(*writing)] == [1, 1, 1]
    await closing
    assert gone == ["near 0", "near 1", "close near 0", "close near 1", "far"]


async def test_closing_waits_for_what_is_being_written() -> None:
    """Whoever waits for an answer gets it; later ones cross again, and are told there that the store is closed."""
    ways = Ways()
    for _ in range(OFTEN):
        await ways.inserts.insert([new_job()])
    ways.may_end.clear()
    writing = asyncio.create_task(ways.inserts.insert([new_job()]))
    await asyncio.sleep(0)
    closing = asyncio.create_task(ways.inserts.close())
    await asyncio.sleep(0.01)
    assert ways.gone[-1] == "near"
    ways.may_end.set()
    assert len(await writing) == 1
    await closing
    await ways.inserts.insert([new_job()])
    assert ways.gone[-2:] == ["close", "far"]


def test_a_connection_ends_with_its_loop() -> None:
    """A program that runs a loop for a while, and forgets the store, leaves nothing open."""

    async def main() -> Ways:
        ways = Ways()
        for _ in range(OFTEN):
            await ways.inserts.insert([new_job()])
        return ways

    assert asyncio.run(main()).gone[-2:] == ["near", "close"]


NEARBY = [name for name in BACKENDS if name in ("postgres", "redis")]


@pytest.mark.parametrize("nearby", NEARBY)
async def test_jobs_inserted_directly_are_like_all_others(nearby: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are stored, known ids are not stored again, sleepers are woken; nothing of it goes through the store's thread."""
    url = url_of(nearby, tmp_path)
    async with Mulligan(url) as app, Mulligan(url) as other:
        store = app.store
        for _ in range(OFTEN):
            await store.insert([new_job()])

        async def never(*_: object) -> list[Inserted]:
            raise AssertionError("through the thread")

        monkeypatch.setattr(store, "_insert", never)
        listeners = [store.listen(), other.store.listen()]
        job = new_job(task="direct")
        [answer] = await store.insert([job])
        assert answer.created
        assert [await listener.wait(5) for listener in listeners] == [True, True]
        for listener in listeners:
            listener.close()
        [again] = await store.insert([job])
        assert again.id == job.id
        assert sum(one.fresh_ready for one in (await store.stats()).queues) == OFTEN + 1
        assert (await get(store, job.id)).task == "direct"
        many = [new_job() for _ in range(20)]
        answers = await asyncio.gather(*(store.insert([one]) for one in many))
        assert [answer.id for [answer] in answers] == [one.id for one in many]
        with pytest.raises(AssertionError, match="through the thread"):
            monkeypatch.setattr(store, "_direct", lambda: None)
            await _on_another_loop(store, 1)


@pytest.mark.parametrize("nearby", NEARBY)
async def test_closing_lets_go_of_the_connections_of_all_loops(nearby: str, tmp_path: Path) -> None:
    """Of this loop, of one that runs elsewhere, and of one that has ended. Afterwards the store can be opened again."""
    app = Mulligan(url_of(nearby, tmp_path))
    await app.open()
    store = app.store
    assert isinstance(store, NetworkStore)
    await _on_another_loop(store, OFTEN + 1)  # and ends
    other = asyncio.new_event_loop()
    thread = threading.Thread(target=other.run_forever)
    thread.start()
    try:
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_inserted(store, OFTEN + 1), other))
        assert len(store._inserts) == 1, "the one whose loop has ended was not dropped"
        await _inserted(store, OFTEN + 1)
        await app.close()
        assert not store._inserts
        with pytest.raises(IllegalMove):
            await store.insert([new_job()])
        await app.open()
        await _inserted(store, OFTEN + 1)
        assert sum(one.fresh_ready for one in (await store.stats()).queues) == 4 * (OFTEN + 1)
        await app.close()
    finally:
        other.call_soon_threadsafe(other.stop)
        await asyncio.to_thread(thread.join)
        other.close()


async def _inserted(store: NetworkStore, many: int) -> None:
    for _ in range(many):
        await store.insert([new_job()])


async def _on_another_loop(store: object, many: int) -> None:
    assert isinstance(store, NetworkStore)
    await asyncio.to_thread(lambda: asyncio.run(_inserted(store, many)))
