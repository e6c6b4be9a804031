"""Beside the worker's loops: abandoned threads, stores that open slowly, lost answers, refused schedules, loops that end."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest

from mulligan import Mulligan, RetryPolicy
from mulligan.core.errors import StoreRejected, StoreUnavailable
from tests.conftest import url_of
from tests.faults import FaultyStore
from tests.virtual import Stage, play

ONCE = RetryPolicy(max_retries=0)


async def test_a_thread_that_does_not_stop_takes_no_place(backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a sync handler had to be abandoned, the next one has a thread to run in and does not time out waiting for it."""
    monkeypatch.setattr("mulligan.worker.perform.THREAD_STOP_S", 0.1)
    released = threading.Event()
    async with Mulligan(url_of(backend, tmp_path)) as app:

        @app.task(timeout=0.1, retry=ONCE)
        def hangs() -> None:
            released.wait(60)

        @app.task(timeout=1, retry=ONCE)
        def works() -> str:
            return "has a thread"

        first = await hangs.enqueue()
        async with app.worker(concurrency=1):
            second = await works.enqueue()
            try:
                assert await second.result(timeout=10) == "has a thread"
            finally:
                released.set()
        assert (await first.job()).status == "failed"


async def test_leaving_an_opening_store_disturbs_no_one() -> None:
    """Of several calls that wait for the store to open, one that is cancelled leaves the others alone, the opener included."""

    async def openings(cancelled: int) -> list[object]:
        app = Mulligan("memory://")
        really = app.store.open

        async def slowly() -> None:
            await asyncio.sleep(0.02)
            await really()

        app.store.open = slowly  # type: ignore[method-assign]
        calls = [asyncio.create_task(app.status()) for _ in range(3)]
        await asyncio.sleep(0.01)
        calls[cancelled].cancel()
        ends = await asyncio.gather(*calls, return_exceptions=True)
        assert (await app.status()).queues == []
        return [type(end) for end in ends if not isinstance(end, asyncio.CancelledError)]

    for cancelled in (0, 1, 2):
        assert [kind.__name__ for kind in await openings(cancelled)] == ["Status", "Status"]  # type: ignore[attr-defined]


def test_a_manual_settle_may_be_repeated(backend: str, tmp_path: Path) -> None:
    """When the answer was lost, the same call again says True; a second one after an answer says False."""

    async def scene(stage: Stage) -> None:
        @stage.app.task
        async def work() -> None:
            pass

        store = FaultyStore(stage.app.store)
        stage.app.store = store
        handle = await work.enqueue()
        [lease] = await stage.app.claim()
        store.fail("settle", when="after")
        with pytest.raises(StoreUnavailable):
            await lease.complete("once")
        assert await lease.fail("another way") is False
        store.fail("settle")
        with pytest.raises(StoreUnavailable):
            await lease.complete("twice")
        assert (await handle.job()).result == "once"

        [other] = [await stage.app.enqueue("work")]
        [lease] = await stage.app.claim()
        store.fail("settle", when="after")
        with pytest.raises(StoreUnavailable):
            await lease.complete()
        assert await lease.complete() is True
        assert await lease.complete() is False
        assert (await other.job()).status == "done"

    play(backend, tmp_path, scene)


def test_a_schedule_that_cannot_fire_does_not_stop_the_others(backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tick the store refuses is logged; the schedules behind it fire on time."""

    async def scene(stage: Stage) -> None:
        @stage.app.task
        async def tick() -> None:
            pass

        really = stage.app.store.fire

        async def fire(ticks: Any) -> Any:
            if ticks[0].name == "a":
                raise StoreRejected("damaged")
            return await really(ticks)

        monkeypatch.setattr(stage.app.store, "fire", fire)
        for name in ("a", "b"):
            await stage.app.enqueue("tick", interval=1, name=name)
        async with stage.worker():
            await asyncio.sleep(5.5)
        assert len([job async for job in stage.app.jobs(schedule="b")]) == 5

    play(backend, tmp_path, scene)


def leave_a_worker(url: str) -> None:
    """A loop that ends without stopping its worker; the app is closed afterwards."""
    app = Mulligan(url)

    async def main() -> threading.Thread:
        @app.task
        async def slow() -> None:
            await asyncio.sleep(600)

        await slow.enqueue()
        worker = app.worker(lease=0.3)
        await worker.start()
        assert worker._keeper_thread is not None
        return worker._keeper_thread._thread

    keeper = asyncio.run(main())
    keeper.join(10)
    assert not keeper.is_alive()
    asyncio.run(app.close())


def test_a_worker_left_behind_by_its_loop_lets_go(backend: str, tmp_path: Path) -> None:
    """When a loop ends without a stop, the keeper's thread ends as well, and the leases can run out."""
    leave_a_worker(url_of(backend, tmp_path))
    with warnings.catch_warnings():
        # Its connection is left behind, too. Python says so when it finds it, which must not be in another test.
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def test_closing_sync_frees_the_threads_that_wait() -> None:
    """A thread that waits for a result when another closes the app is told, not left waiting for ever."""
    app = Mulligan("memory://")
    ends: list[BaseException] = []
    reading = threading.Event()
    really = app.store.get

    async def get(ids: Any) -> Any:
        reading.set()
        return await really(ids)

    app.store.get = get  # type: ignore[method-assign]

    @app.task
    async def never() -> None:
        pass

    handle = never.sync.enqueue()

    def wait() -> None:
        try:
            handle.result()
        except BaseException as error:  # noqa: BLE001 - whatever it is, it has come back
            ends.append(error)

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    assert reading.wait(10)
    app.sync.close()
    waiting.join(10)
    assert len(ends) == 1
