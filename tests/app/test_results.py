"""handle.result: the value, or the error that tells how the job ended."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mulligan import Cancel, Fail, JobCancelled, JobFailed, JobNotFound, Mulligan, MulliganError, ResultGone, RetryPolicy
from mulligan.core.ids import new_id
from mulligan.handle import Handle
from tests.virtual import Stage, play

VALUES: list[Any] = [None, 0, False, "", "text", [1, [2]], {"a": {"b": None}}, 1.5, (1, 2)]


def test_a_result_comes_back_as_it_was_returned(backend: str, tmp_path: Path) -> None:
    """Every JSON value is given back; a tuple as a list, as JSON has it."""

    async def scene(stage: Stage) -> None:
        @stage.app.task
        async def give(number: int) -> Any:
            return VALUES[number]

        handles = await stage.app.enqueue_many([give.job(number) for number in range(len(VALUES))])
        async with stage.worker():
            results = [await handle.result(timeout=60) for handle in handles]
        assert results == [*VALUES[:-1], [1, 2]]
        job = await handles[0].job()
        assert (job.status, job.attempts, job.failures, job.history) == ("done", 1, 0, ())
        assert job.finished_at is not None

    play(backend, tmp_path, scene)


def test_result_waits_through_retries(backend: str, tmp_path: Path) -> None:
    """A failure that is retried is not the end: result waits for the last word."""

    async def scene(stage: Stage) -> None:
        calls: list[float] = []

        @stage.app.task(retry=RetryPolicy(jitter="none"))
        async def flaky() -> str:
            calls.append(stage.elapsed_s)
            if len(calls) < 3:
                raise ConnectionError("down")
            return "up"

        handle = await flaky.enqueue()
        async with stage.worker():
            assert await handle.result(timeout=60) == "up"
        assert [round(at_s) for at_s in calls] == [0, 1, 3]

    play(backend, tmp_path, scene)


def test_a_failed_job_raises_job_failed_with_its_error(backend: str, tmp_path: Path) -> None:
    """JobFailed names the job, its attempts and the last error, and carries that error."""

    async def scene(stage: Stage) -> None:
        @stage.app.task(retry=RetryPolicy(max_retries=1))
        async def broken() -> None:
            raise ValueError("bad invoice")

        @stage.app.task
        async def hopeless() -> None:
            raise Fail("no such invoice", code=404)

        handles = [await broken.enqueue(), await hopeless.enqueue()]
        async with stage.worker():
            with pytest.raises(JobFailed, match="failed after 2 attempts: .*ValueError: bad invoice") as caught:
                await handles[0].result(timeout=60)
            assert caught.value.error.message == "bad invoice"  # type: ignore[attr-defined]
            with pytest.raises(MulliganError, match="failed after 1 attempt: ") as caught_too:
                await handles[1].result(timeout=60)
        assert isinstance(caught_too.value, JobFailed)
        assert caught_too.value.error.code == "404"  # type: ignore[attr-defined]

    play(backend, tmp_path, scene)


def test_a_cancelled_job_raises_job_cancelled(backend: str, tmp_path: Path) -> None:
    """Both a job cancelled while it waited and one whose handler raised Cancel."""

    async def scene(stage: Stage) -> None:
        @stage.app.task
        async def unneeded() -> None:
            raise Cancel("not needed")

        waiting = await unneeded.options(delay=100).enqueue()
        assert await stage.app.cancel(waiting.id) == "cancelled"
        with pytest.raises(JobCancelled, match=waiting.id):
            await waiting.result()
        handle = await unneeded.enqueue()
        async with stage.worker():
            with pytest.raises(JobCancelled):
                await handle.result(timeout=60)

    play(backend, tmp_path, scene)


def test_a_result_that_was_pruned_is_gone(backend: str, tmp_path: Path) -> None:
    """After retention has removed the job, result says that it is gone, and get that it is not found."""

    async def scene(stage: Stage) -> None:
        @stage.app.task
        async def work() -> str:
            return "x"

        handle = await work.enqueue()
        async with stage.worker(keep_done=60):
            assert await handle.result(timeout=10) == "x"
            await asyncio.sleep(180)
        with pytest.raises(ResultGone, match="no job has the id"):
            await handle.result()
        with pytest.raises(JobNotFound, match="retention"):
            await handle.job()

    play(backend, tmp_path, scene)


def test_a_job_that_vanishes_while_waited_for_is_gone(backend: str, tmp_path: Path) -> None:
    """Whoever waits is told, too, when the job is removed before its result was read."""

    async def scene(stage: Stage) -> None:
        stage.app.declare("work")
        handle = await stage.app.enqueue("work")
        waiting = asyncio.create_task(handle.result(timeout=600))
        await asyncio.sleep(1)
        [lease] = await stage.app.claim()
        # Done and removed between two looks of the waiter.
        await lease.complete("x")
        await stage.app.store.prune("done", 0, 10)
        with pytest.raises(ResultGone, match="no longer kept"):
            await waiting

    play(backend, tmp_path, scene)


def test_result_times_out_and_leaves_the_job_alone(backend: str, tmp_path: Path) -> None:
    """TimeoutError after the time asked for; the job still waits, and a later call gets its result."""

    async def scene(stage: Stage) -> None:
        @stage.app.task
        async def work() -> int:
            return 7

        handle = await work.options(delay=10).enqueue()
        with pytest.raises(TimeoutError):
            await handle.result(timeout=5)
        assert 5 <= stage.elapsed_s < 6
        assert (await handle.job()).status == "pending"
        async with stage.worker():
            assert await handle.result(timeout=60) == 7

    play(backend, tmp_path, scene)


async def test_a_handle_to_nothing_is_gone(app: Mulligan) -> None:
    """An id that no job has, well formed or not, is told at once, not waited for."""
    for job_id in (new_id(0), "nonsense", ""):
        with pytest.raises(ResultGone):
            await Handle[None](app, job_id).result(timeout=5)
