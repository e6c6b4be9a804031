"""What a hostile handler, a failing store or an impatient owner must not do to a worker: leak a slot, hang its stop, strand a job."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from mulligan import RetryPolicy
from mulligan.core.change import Grip
from mulligan.core.errors import IllegalMove, StoreUnavailable
from tests.faults import FaultyStore
from tests.virtual import Stage, play

ONCE = RetryPolicy(max_retries=0)


def faulty(stage: Stage) -> FaultyStore:
    """The stage's store, made able to fail."""
    store = FaultyStore(stage.app.store)
    stage.app.store = store
    return store


async def cancels_itself() -> None:
    """A handler that cancels the task it runs in."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(1)


async def leaves_a_cancellation_behind() -> None:
    """A handler that cancels the task it runs in, and returns before that arrives."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


async def raises_generator_exit() -> None:
    """A handler that raises what ends a coroutine."""
    raise GeneratorExit


def raises_generator_exit_in_a_thread() -> None:
    """The same, in a thread."""
    raise GeneratorExit


def raises_stop_iteration_in_a_thread() -> None:
    """A sync handler that runs off the end of an iterator."""
    next(iter([]))


@pytest.mark.parametrize(
    ("handler", "status"),
    [
        (cancels_itself, "failed"),
        (leaves_a_cancellation_behind, "done"),
        (raises_generator_exit, "failed"),
        (raises_generator_exit_in_a_thread, "failed"),
        (raises_stop_iteration_in_a_thread, "failed"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_no_handler_costs_the_worker_a_slot(backend: str, tmp_path: Path, handler: Callable[[], Any], status: str) -> None:
    """Its job ends at once, not by a time-out, and the only slot of the worker runs the next job."""

    async def scene(stage: Stage) -> None:
        @stage.app.task
        async def good() -> str:
            return "still here"

        bad = await stage.app.task(retry=ONCE)(handler).enqueue()
        async with stage.worker(concurrency=1) as worker:
            await asyncio.sleep(3)
            after = await good.enqueue()
            assert await after.result(timeout=3) == "still here"
            assert (worker.executor.busy, worker.executor.running) == (0, 0)
        assert (await bad.job()).status == status
        assert (await after.job()).attempts == 1

    play(backend, tmp_path, scene)


def test_a_bug_on_the_way_to_an_outcome_strands_no_job(backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The slot goes on, the lease is no longer renewed, and the job runs again when it has run out."""
    calls: list[object] = []

    async def scene(stage: Stage) -> None:
        @stage.app.task
        async def work() -> None:
            pass

        async with stage.worker(concurrency=1, lease=3) as worker:
            real = worker.executor._decide

            def broken(*arguments: Any) -> Any:
                calls.append(arguments)
                if len(calls) == 1:
                    raise RuntimeError("a bug")
                return real(*arguments)

            monkeypatch.setattr(worker.executor, "_decide", broken)
            handle = await work.enqueue()
            await handle.result(timeout=10)
        assert (await handle.job()).crashes == 1

    play(backend, tmp_path, scene)


async def ignores_one_cancellation() -> None:
    """A handler that has to be told twice."""
    try:
        await asyncio.sleep(10_000)
    except asyncio.CancelledError:
        await asyncio.sleep(10_000)


async def ignores_every_cancellation() -> None:
    """A handler that does not obey for a long time."""
    for _ in range(100):
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            continue


@pytest.mark.parametrize("handler", [ignores_one_cancellation, ignores_every_cancellation])
def test_a_stop_ends_whatever_handlers_do(backend: str, tmp_path: Path, handler: Callable[[], Awaitable[None]]) -> None:
    """A handler that ignores its cancellation is left behind within seconds of the grace time; its job goes back by its lease."""

    async def scene(stage: Stage) -> None:
        handle = await stage.app.task(handler).enqueue()
        worker = stage.worker(grace=1)
        await worker.start()
        await asyncio.sleep(1)
        async with asyncio.timeout(30):
            await worker.stop()
        assert (await handle.job()).status == "processing"

    play(backend, tmp_path, scene)


def test_a_stop_ends_while_the_store_is_away_and_the_buffer_full(backend: str, tmp_path: Path) -> None:
    """Unstarted jobs that cannot be given back are left to their leases after a while; the worker can be started again and runs them."""

    async def scene(stage: Stage) -> None:
        store = faulty(stage)

        @stage.app.task
        async def work() -> None:
            await asyncio.sleep(0.5)

        handles = await stage.app.enqueue_many([work.job() for _ in range(20)])
        worker = stage.worker(concurrency=10, buffer=2, batch=2, ahead=0, grace=1, lease=5)
        await worker.start()
        await asyncio.sleep(0.2)
        claimed = await store.claim(handles[0].id, worker.name, worker._fetcher._planner.asks(10), 10, 5_000_000)
        worker.executor.accept(claimed.jobs)
        store.fail("settle", times=10_000)
        await asyncio.sleep(0.5)
        assert worker.executor.waiting > 0
        async with asyncio.timeout(60):
            await worker.stop()
        store._plan.clear()
        async with worker:
            await asyncio.sleep(10)  # the leases run out
            await worker.drain()
        assert {(await handle.job()).status for handle in handles} == {"done"}

    play(backend, tmp_path, scene)


def test_a_keeper_on_the_loop_renews_through_the_grace_time(backend: str, tmp_path: Path) -> None:
    """A job that finishes within the grace time of a stopping worker is not taken over by another worker meanwhile."""
    runs: list[float] = []

    async def scene(stage: Stage) -> None:
        @stage.app.task
        async def slow() -> None:
            runs.append(stage.elapsed_s)
            await asyncio.sleep(20)

        handle = await slow.enqueue()
        first = stage.worker(lease=3, grace=60)
        await first.start()
        await asyncio.sleep(1)
        async with stage.worker(lease=3):
            await first.stop()
        assert (await handle.job()).status == "done"
        assert len(runs) == 1

    play(backend, tmp_path, scene)


def test_a_keeper_survives_an_error_of_any_kind(backend: str, tmp_path: Path) -> None:
    """A driver's own error in a renewal is one more reason to try again, not the end of all renewals."""

    async def scene(stage: Stage) -> None:
        store = faulty(stage)

        @stage.app.task
        async def slow() -> None:
            await asyncio.sleep(20)

        handle = await slow.enqueue()
        async with stage.worker(lease=3) as worker:
            await asyncio.sleep(0.5)
            store.fail("renew", error=RuntimeError("not one of ours"))
            await worker.drain()
        job = await handle.job()
        assert (job.status, job.crashes) == ("done", 0)

    play(backend, tmp_path, scene)


def test_a_worker_whose_loop_died_stops_by_itself(backend: str, tmp_path: Path) -> None:
    """It lets its jobs finish, writes them, signs off, and lets go of the leases, though nobody watches it."""

    async def scene(stage: Stage) -> None:
        store = faulty(stage)

        @stage.app.task
        async def slow() -> None:
            await asyncio.sleep(5)

        handle = await slow.enqueue()
        worker = stage.worker()
        await worker.start()
        await asyncio.sleep(0.5)
        store.fail("claim", error=RuntimeError("a bug"))
        await asyncio.sleep(20)
        assert (await handle.job()).status == "done"
        assert (await stage.app.status()).workers == []
        await worker.stop()

    play(backend, tmp_path, scene)


def test_a_drain_ends_when_the_worker_is_stopped(backend: str, tmp_path: Path) -> None:
    """Who waits for a drain is told that it will not come; and all who stop a worker wait for the same end."""

    async def scene(stage: Stage) -> None:
        @stage.app.task
        async def slow() -> None:
            await asyncio.sleep(5)

        await stage.app.enqueue_many([slow.job(), slow.job()])
        worker = stage.worker(concurrency=1)
        await worker.start()
        draining = asyncio.create_task(worker.drain())
        await asyncio.sleep(1)
        await asyncio.gather(worker.stop(), worker.stop())
        assert stage.elapsed_s >= 5
        with pytest.raises(IllegalMove, match="stopped before its queues were empty"):
            await asyncio.wait_for(draining, 10)

    play(backend, tmp_path, scene)


def test_a_cancelled_stop_goes_on(backend: str, tmp_path: Path) -> None:
    """An owner who gives up waiting does not leave half a worker behind."""

    async def scene(stage: Stage) -> None:
        @stage.app.task
        async def slow() -> None:
            await asyncio.sleep(5)

        handle = await slow.enqueue()
        worker = stage.worker()
        await worker.start()
        await asyncio.sleep(1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(worker.stop(), 1)
        await asyncio.sleep(10)
        assert (await handle.job()).status == "done"
        assert (await stage.app.status()).workers == []

    play(backend, tmp_path, scene)


def test_a_start_that_fails_may_be_repeated(backend: str, tmp_path: Path) -> None:
    """A store that is away at the start leaves a worker that is not running: stop does nothing, the next start succeeds."""

    async def scene(stage: Stage) -> None:
        store = faulty(stage)
        store.fail("now_us")
        worker = stage.worker()
        with pytest.raises(StoreUnavailable):
            await worker.start()
        await worker.stop()
        async with worker:
            await worker.drain()

    play(backend, tmp_path, scene)


def test_a_lost_lease_is_told_once(backend: str, tmp_path: Path) -> None:
    """A handler that ignores its cancellation does not make every renewal publish LEASE_LOST again."""

    async def scene(stage: Stage) -> None:
        handle = await stage.app.task(ignores_every_cancellation).enqueue()
        async with stage.worker(lease=3, grace=0) as worker:
            await asyncio.sleep(0.5)
            job = await handle.job()
            await stage.app.store.renew([Grip(job.id, job.fence)], 0)
            assert await worker._sweeper.sweep() == 1
            await asyncio.sleep(20)
            lost = stage.app.events.recent(1_000, kind="LEASE_LOST", job_id=job.id)
            assert [event.fence for event in lost] == [1]

    play(backend, tmp_path, scene)
