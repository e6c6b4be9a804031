"""Opening and closing an app, and an app without an explicit store."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mulligan import IllegalMove, Mulligan, StoreUnavailable
from tests.conftest import url_of
from tests.faults import FaultyStore


async def test_nothing_is_opened_before_it_is_needed(tmp_path: Path) -> None:
    """Making an app, tasks and jobs touches no file; the first call that needs the store opens it."""
    app = Mulligan(f"sqlite:///{tmp_path}/jobs.db")
    task = app.task(name="work")(lambda: None)
    task.job()
    assert list(tmp_path.iterdir()) == []
    await task.enqueue()
    assert (tmp_path / "jobs.db").exists()
    await app.close()


async def test_closed_it_opens_again_with_the_same_jobs(url: str) -> None:
    """Closing twice is fine; the next call opens the store again, and the jobs are there."""
    app = Mulligan(url)
    app.declare("work")
    handle = await app.enqueue("work")
    await app.close()
    await app.close()
    assert (await app.get(handle.id)).status == "pending"
    async with app:
        assert (await handle.job()).id == handle.id
    async with app:
        await app.open()
        assert (await app.status())["default"].ready == 1


async def test_another_app_sees_what_the_first_one_stored(tmp_path: Path) -> None:
    """Two apps on one file are one queue."""
    url = url_of("sqlite", tmp_path)
    async with Mulligan(url) as one, Mulligan(url) as two:
        one.declare("work")
        handle = await one.enqueue("work")
        [lease] = await two.claim()
        assert lease.id == handle.id
        assert await lease.complete("from two")
        assert await handle.result(timeout=5) == "from two"


async def test_many_first_calls_open_once(url: str) -> None:
    """Concurrent first calls share one opening."""
    app = Mulligan(url)
    app.declare("work")
    app.store = faulty = FaultyStore(app.store)
    await asyncio.gather(*(app.enqueue("work") for _ in range(20)))
    assert faulty.calls["open"] == 1
    assert (await app.status())["default"].ready == 20
    await app.close()


async def test_an_opening_that_failed_may_be_tried_again(url: str) -> None:
    """All that waited for it get the error, and the next call opens the store."""
    app = Mulligan(url)
    app.declare("work")
    app.store = faulty = FaultyStore(app.store)
    faulty.fail("open", error=StoreUnavailable("not yet"))
    answers = await asyncio.gather(*(app.open() for _ in range(3)), return_exceptions=True)
    assert any(isinstance(answer, StoreUnavailable) for answer in answers)
    await app.enqueue("work")
    assert (await app.status())["default"].ready == 1
    await app.close()


async def test_the_default_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a URL the environment names the store, and without that a file in the present folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MULLIGAN_STORE", raising=False)
    assert "mulligan.db" in repr(Mulligan())
    async with Mulligan():
        pass
    assert (tmp_path / "mulligan.db").exists()
    monkeypatch.setenv("MULLIGAN_STORE", "memory://")
    assert repr(Mulligan()) == "Mulligan('memory://')"
    monkeypatch.setenv("MULLIGAN_STORE", "")
    assert "mulligan.db" in repr(Mulligan())


async def test_a_running_worker_cannot_be_started_twice(app: Mulligan) -> None:
    """The second start is refused with what to do; stopping twice is fine."""
    worker = app.worker()
    async with worker:
        with pytest.raises(IllegalMove, match=r"make another one with app\.worker\(\)"):
            await worker.start()
    await worker.stop()


async def test_two_workers_in_one_process_share_the_work(app: Mulligan) -> None:
    """Each job runs once, whoever of the two takes it."""
    ran: list[int] = []

    @app.task
    async def work(number: int) -> None:
        ran.append(number)
        await asyncio.sleep(0)

    await app.enqueue_many([work.job(number) for number in range(500)])
    async with app.worker(concurrency=5, ahead=5) as one, app.worker(concurrency=5, ahead=5) as two:
        await asyncio.gather(one.drain(), two.drain())
    assert sorted(ran) == list(range(500))
    assert (await app.status())["default"].done == 500
