"""The executor: nothing a handler does ends the worker, and every way a run can stop becomes the outcome that fits."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from pathlib import Path
from typing import Any

import pytest

from mulligan import Cancel, Context, Fail, Job, Mulligan, Retry, RetryPolicy, Snooze
from tests.conftest import url_of
from tests.virtual import Stage, play

ONCE = RetryPolicy(max_retries=0)


class OddError(BaseException):
    """Not an Exception, and it cannot even be printed."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def raise_recursive_cause() -> None:
    """Raises an error that is its own cause."""
    error = ValueError("mine")
    error.__cause__ = error
    raise error


async def end_of(stage: Stage, handler: Any, *args: Any, concurrency: int = 100, **settings: Any) -> Job:
    """Runs one job of this handler until nothing is left to do."""
    task = stage.app.task(**settings)(handler)
    handle = await task.enqueue(*args)
    async with stage.worker(concurrency=concurrency) as worker:
        await worker.drain()
    return await handle.job()


def raiser(error: BaseException) -> Any:
    """A handler that raises this error."""

    async def handler() -> None:
        raise error

    return handler


@pytest.mark.parametrize(
    ("error", "type_part"),
    [
        (ConnectionError("transient"), "ConnectionError"),
        (ValueError("deterministic"), "ValueError"),
        (OddError(), "OddError"),
        (SystemExit(3), "SystemExit"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (asyncio.CancelledError(), "CancelledError"),
        (RuntimeError("x" * 10_000_000), "RuntimeError"),
        (RuntimeError("nul \0 and surrogate \ud800"), "RuntimeError"),
        (StopIteration("loop end"), "RuntimeError"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_p03_no_handler_error_ends_the_worker(backend: str, tmp_path: Path, error: BaseException, type_part: str) -> None:
    """Whatever a handler raises is recorded, settled, and the same worker runs the next job (P03, fault 29)."""

    async def scene(stage: Stage) -> None:
        @stage.app.task(retry=ONCE)
        async def bad() -> None:
            raise error

        @stage.app.task
        async def good() -> str:
            return "still here"

        handle = await bad.enqueue()
        async with stage.worker() as worker:
            await worker.drain()
            after = await good.enqueue()
            await worker.drain()
            assert await after.result(timeout=1) == "still here"
        job = await handle.job()
        assert job.status == "failed"
        assert job.last_error is not None
        assert type_part in job.last_error.type
        assert len(job.last_error.message) < 5_000

    play(backend, tmp_path, scene)


def test_an_error_that_is_its_own_cause_is_recorded(backend: str, tmp_path: Path) -> None:
    """A recursive cause does not hang the record."""

    async def scene(stage: Stage) -> None:
        async def handler() -> None:
            raise_recursive_cause()

        job = await end_of(stage, handler, retry=ONCE)
        assert job.status == "failed"

    play(backend, tmp_path, scene)


@pytest.mark.parametrize("raised", [True, False], ids=["raised", "returned"])
@pytest.mark.parametrize(
    ("signal", "status", "outcome"),
    [
        (Fail("no such invoice", code="404"), "failed", "failure"),
        (Cancel("not needed"), "cancelled", "cancel"),
        (Snooze(5), "done", "snooze"),
        (Retry(after=7), "done", "retry asked"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_signals_choose_the_fate(backend: str, tmp_path: Path, raised: bool, signal: Exception, status: str, outcome: str) -> None:
    """Retry, Snooze, Fail and Cancel do the same whether raised or returned."""
    calls: list[float] = []

    async def scene(stage: Stage) -> Job:
        async def handler() -> Any:
            calls.append(stage.elapsed_s)
            if len(calls) > 1:
                return None
            if raised:
                raise signal
            return signal

        task = stage.app.task(handler)
        handle = await task.enqueue()
        async with stage.worker() as worker:
            await worker.drain()
            await asyncio.sleep(10)
        return await handle.job()

    job = play(backend, tmp_path, scene)
    assert job.status == status
    assert job.history[0].outcome == outcome
    if isinstance(signal, Fail):
        assert job.last_error is not None
        assert (job.last_error.message, job.last_error.code) == ("no such invoice", "404")
    if isinstance(signal, Snooze):
        assert round(calls[1] - calls[0]) == 5
        assert (job.attempts, job.snoozes, job.failures) == (1, 1, 0)
    if isinstance(signal, Retry):
        assert round(calls[1] - calls[0]) == 7
        assert (job.attempts, job.failures) == (2, 1)


def test_o17_a_time_out_is_a_failure_and_is_retried(backend: str, tmp_path: Path) -> None:
    """An async handler over its time is stopped at its deadline, recorded as a time-out, and run again."""
    starts: list[float] = []

    async def scene(stage: Stage) -> Job:
        async def handler() -> str:
            starts.append(stage.elapsed_s)
            if len(starts) == 1:
                await asyncio.sleep(100)
            return "second time"

        job = await end_of(stage, handler, timeout=10, retry=RetryPolicy(jitter="none"))
        assert stage.elapsed_s < 100
        return job

    job = play(backend, tmp_path, scene)
    assert (job.status, job.result, job.failures, job.attempts) == ("done", "second time", 1, 2)
    assert job.history[0].outcome == "timeout"
    assert [round(at_s) for at_s in starts] == [0, 11]


def test_a_handler_that_swallows_its_cancellation_may_still_finish(backend: str, tmp_path: Path) -> None:
    """A handler that catches the cancellation of its time-out and returns has done its work: that counts."""

    async def scene(stage: Stage) -> None:
        async def handler() -> str:
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                return "cleaned up"
            return "unreachable"

        job = await end_of(stage, handler, timeout=1)
        assert (job.status, job.result) == ("done", "cleaned up")

    play(backend, tmp_path, scene)


async def test_a_sync_handler_over_its_time_is_interrupted(backend: str, tmp_path: Path) -> None:
    """A thread that runs Python code is stopped by an exception, the attempt is a time-out, and its slot is free again."""
    app = Mulligan(url_of(backend, tmp_path))
    never = threading.Event()

    @app.task(timeout=0.1, retry=ONCE)
    def spin() -> None:
        while not never.is_set():
            never.wait(0.005)

    @app.task
    def quick(number: int) -> int:
        return number + 1

    async with app:
        handle = await spin.enqueue()
        async with app.worker(concurrency=1) as worker:
            await worker.drain()
            after = await quick.enqueue(1)
            assert await after.result(timeout=10) == 2
        job = await handle.job()
    assert (job.status, job.history[0].outcome) == ("failed", "timeout")


def test_an_unknown_task_is_released_uncounted_with_a_delay(backend: str, tmp_path: Path) -> None:
    """A job whose task this process does not know waits 30 s, spends no attempt, is never failed, and is reported."""

    async def scene(stage: Stage) -> None:
        stage.app.declare("elsewhere")
        handle = await stage.app.enqueue("elsewhere")
        async with stage.worker() as worker:
            await asyncio.sleep(45)
            job = await handle.job()
            assert (job.status, job.attempts, job.failures, job.releases) == ("pending", 0, 0, 2)
            assert worker.executor.unknown_tasks == {"elsewhere"}
            assert "elsewhere" in (await stage.app.status()).workers[0].unknown_tasks

    play(backend, tmp_path, scene)


def test_a_result_that_cannot_be_stored_is_a_defined_failure(backend: str, tmp_path: Path) -> None:
    """An unserialisable result is not a silent success, and not retried, for the work was done (fault 30)."""

    async def scene(stage: Stage) -> None:
        async def handler() -> object:
            return object()

        job = await end_of(stage, handler)
        assert (job.status, job.attempts) == ("failed", 1)
        assert job.last_error is not None
        assert "cannot be stored" in job.last_error.message

    play(backend, tmp_path, scene)


def test_context_variables_of_one_job_do_not_reach_the_next(tmp_path: Path) -> None:
    """Slots run many jobs in one task, yet each handler has context variables of its own."""
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")
    seen: list[str] = []

    async def scene(stage: Stage) -> None:
        @stage.app.task
        async def handler(name: str) -> None:
            seen.append(variable.get())
            variable.set(name)
            await asyncio.sleep(0.01)
            assert variable.get() == name

        await stage.app.enqueue_many([handler.job(str(number)) for number in range(5)])
        async with stage.worker(concurrency=1) as worker:
            await worker.drain()

    play("memory", tmp_path, scene)
    assert seen == ["unset"] * 5


def test_a_running_job_is_cancelled_within_a_renewal(backend: str, tmp_path: Path) -> None:
    """request_cancel on a running job stops its handler at the next renewal, and the job ends as cancelled."""

    async def scene(stage: Stage) -> None:
        told: list[bool] = []

        @stage.app.task
        async def long(ctx: Context) -> None:
            try:
                await asyncio.sleep(3_600)
            finally:
                told.append(ctx.cancelled)

        handle = await long.enqueue()
        async with stage.worker(lease=30) as worker:
            await asyncio.sleep(5)
            assert await stage.app.cancel(handle.id) == "requested"
            await worker.drain()
            assert stage.elapsed_s < 20
        assert (await handle.job()).status == "cancelled"
        assert told == [True]

    play(backend, tmp_path, scene)


def test_middleware_wraps_attempts_in_order(backend: str, tmp_path: Path) -> None:
    """The first middleware added is the outermost; it sees the context and may turn errors around."""
    trail: list[str] = []

    async def scene(stage: Stage) -> None:
        @stage.app.use
        async def outer(ctx: Context, call_next: Any) -> Any:
            trail.append(f"outer {ctx.job.task}")
            try:
                return await call_next()
            finally:
                trail.append("outer end")

        @stage.app.use
        async def inner(ctx: Context, call_next: Any) -> Any:
            trail.append("inner")
            return (await call_next()) + "!"

        async def handler(word: str) -> str:
            return word

        job = await end_of(stage, handler, "hi")
        assert job.result == "hi!"

    play(backend, tmp_path, scene)
    assert trail == ["outer handler", "inner", "outer end"]


def test_a_job_past_its_maximum_age_is_not_started(backend: str, tmp_path: Path) -> None:
    """A job that waited longer than max_age fails as too old without running."""
    ran: list[int] = []

    async def scene(stage: Stage) -> None:
        @stage.app.task
        async def late() -> None:
            ran.append(1)

        handle = await late.options(max_age=10).enqueue()
        await asyncio.sleep(11)
        async with stage.worker() as worker:
            await worker.drain()
        job = await handle.job()
        assert job.status == "failed"
        assert job.history[-1].outcome == "expired"

    play(backend, tmp_path, scene)
    assert ran == []
