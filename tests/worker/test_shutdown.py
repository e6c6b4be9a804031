"""Stopping: unstarted jobs go back uncounted, running ones finish within the grace time or are given back, nothing is lost."""

from __future__ import annotations

import asyncio
import gc
import sys
from pathlib import Path

import pytest

from mulligan import Context, Mulligan
from tests.conftest import url_of
from tests.virtual import Stage, play


def test_unstarted_jobs_are_released_uncounted(backend: str, tmp_path: Path) -> None:
    """What was claimed but had no slot yet goes back with its attempt, lane and due time as before."""

    async def scene(stage: Stage) -> None:
        @stage.app.task
        async def slow() -> None:
            await asyncio.sleep(5)

        handles = await stage.app.enqueue_many([slow.job() for _ in range(10)])
        worker = stage.worker(concurrency=2, ahead=0)
        await worker.start()
        await asyncio.sleep(1)
        # Hold more than there are slots for, as a claim ahead would.
        claimed = await stage.app.store.claim(handles[0].id, worker.name, worker._fetcher._planner.asks(4), 4, 30_000_000)
        worker.executor.accept(claimed.jobs)
        await worker.stop()
        jobs = [await handle.job() for handle in handles]
        assert [job.status for job in jobs].count("done") == 2
        released = [job for job in jobs if job.releases == 1]
        assert len(released) == 4
        assert all((job.status, job.attempts, job.lane, job.failures) == ("pending", 0, "fresh", 0) for job in released)

    play(backend, tmp_path, scene)


def test_running_jobs_finish_within_the_grace_time(backend: str, tmp_path: Path) -> None:
    """A stop waits for handlers that end in time, and does not wait longer than they need."""

    async def scene(stage: Stage) -> None:
        @stage.app.task
        async def slow() -> str:
            await asyncio.sleep(5)
            return "finished"

        handle = await slow.enqueue()
        async with stage.worker(grace=25):
            await asyncio.sleep(1)
        assert 5 <= stage.elapsed_s < 6
        assert (await handle.job()).result == "finished"

    play(backend, tmp_path, scene)


def test_what_outlasts_the_grace_time_is_stopped_and_given_back(backend: str, tmp_path: Path) -> None:
    """After the grace time a handler is cancelled, its job is pending again with the attempt refunded, and another worker runs it."""
    runs: list[float] = []

    async def scene(stage: Stage) -> None:
        @stage.app.task
        async def slow() -> None:
            runs.append(stage.elapsed_s)
            await asyncio.sleep(60 if len(runs) == 1 else 0)

        handle = await slow.enqueue()
        async with stage.worker(grace=3):
            await asyncio.sleep(1)
        job = await handle.job()
        assert (job.status, job.attempts, job.releases, job.crashes) == ("pending", 0, 1, 0)
        assert stage.elapsed_s < 5
        async with stage.worker() as second:
            await second.drain()
        assert (await handle.job()).status == "done"

    play(backend, tmp_path, scene)


def test_a_stop_in_a_hurry_does_not_wait(backend: str, tmp_path: Path) -> None:
    """A second signal cuts the grace time short; the job is still given back."""

    async def scene(stage: Stage) -> None:
        @stage.app.task
        async def slow() -> None:
            await asyncio.sleep(600)

        handle = await slow.enqueue()
        worker = stage.worker(grace=500)
        await worker.start()
        await asyncio.sleep(1)
        stopping = asyncio.create_task(worker.stop())
        await asyncio.sleep(1)
        worker.hurry()
        await stopping
        assert stage.elapsed_s < 4
        assert (await handle.job()).status == "pending"

    play(backend, tmp_path, scene)


def test_start_up_and_shutdown_hooks_run_once_per_worker(backend: str, tmp_path: Path) -> None:
    """Hooks, async or not, run around the worker, and what they put on app.state reaches handlers through the context."""
    trail: list[str] = []

    async def scene(stage: Stage) -> None:
        @stage.app.on_startup
        async def connect() -> None:
            stage.app.state.client = "client"
            trail.append("up")

        @stage.app.on_shutdown
        def disconnect() -> None:
            trail.append("down")

        @stage.app.task
        async def work(ctx: Context) -> str:
            trail.append("work")
            return str(ctx.state.client)

        handle = await work.enqueue()
        async with stage.worker() as worker:
            await worker.drain()
        assert (await handle.job()).result == "client"

    play(backend, tmp_path, scene)
    assert trail == ["up", "work", "down"]


def test_a_worker_that_stopped_cleanly_is_no_longer_listed(backend: str, tmp_path: Path) -> None:
    """Status counts a worker from its first beat to its last word, not until it has been silent for long."""

    async def scene(stage: Stage) -> None:
        async with stage.worker() as worker:
            await asyncio.sleep(1)
            assert [one.id for one in (await stage.app.status()).workers] == [worker.name]
        assert (await stage.app.status()).workers == []

    play(backend, tmp_path, scene)


def test_a_worker_never_has_the_name_of_an_earlier_one(backend: str, tmp_path: Path) -> None:
    """Leases and ids of outcomes carry it: the same process may run one worker after the other, or two at once."""

    async def scene(stage: Stage) -> None:
        async with stage.worker() as first, stage.worker() as second:
            names = {first.name, second.name}
        async with stage.worker() as third:
            assert len({*names, third.name}) == 3

    play(backend, tmp_path, scene)


async def test_garbage_is_searched_for_less_often_only_while_a_worker_runs(tmp_path: Path) -> None:
    """The first worker raises the threshold and the last one puts it back; a higher one stays, and one of 0 too."""
    before = gc.get_threshold()
    async with Mulligan(url_of("memory", tmp_path)) as app:
        async with app.worker(), app.worker(gc_every=5):
            assert gc.get_threshold() == (20_000, *before[1:])
        assert gc.get_threshold() == before
        async with app.worker(gc_every=None):
            assert gc.get_threshold() == before
        for already in (0, 50_000):
            try:
                gc.set_threshold(already)
                async with app.worker():
                    assert gc.get_threshold()[0] == already
                assert gc.get_threshold()[0] == already
            finally:
                gc.set_threshold(*before)


async def test_threads_take_shorter_turns_only_while_a_worker_runs(backend: str, tmp_path: Path) -> None:
    """The interpreter's switch interval is lowered by the first worker and put back by the last one."""
    before = sys.getswitchinterval()
    async with Mulligan(url_of(backend, tmp_path)) as app:
        async with app.worker():
            async with app.worker(thread_turn=0.01):
                assert sys.getswitchinterval() == pytest.approx(0.0001, rel=0.05)
            assert sys.getswitchinterval() == pytest.approx(0.0001, rel=0.05)
        assert sys.getswitchinterval() == before
        async with app.worker(thread_turn=None):
            assert sys.getswitchinterval() == before
