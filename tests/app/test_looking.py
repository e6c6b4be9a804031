"""Looking: get, jobs with filters and pages, and the status of queues."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mulligan import BadSetting, Fail, JobNotFound, Mulligan, RetryPolicy, UnknownQueue
from mulligan.core.ids import new_id
from tests.virtual import Stage, play


async def make_zoo(app: Mulligan) -> dict[str, str]:
    """One job of each kind by name: name -> id."""

    @app.task(tags=["even"])
    async def one() -> None: ...

    @app.task(queue="b")
    async def two() -> None: ...

    made: dict[str, str] = {}
    made["pending b"] = (await two.enqueue()).id
    made["done"] = (await one.enqueue()).id
    [lease] = await app.claim()
    await lease.complete("r")
    made["failed"] = (await one.enqueue()).id
    [lease] = await app.claim()
    await lease.fail("x", retry=False)
    made["retry"] = (await one.enqueue()).id
    [lease] = await app.claim()
    await lease.fail("x", after=1_000)
    made["processing"] = (await one.enqueue()).id
    await app.claim()
    made["cancelled"] = (await one.options(tags=["odd"]).enqueue()).id
    await app.cancel(made["cancelled"])
    made["later"] = (await one.options(delay=1_000).enqueue()).id
    return made


@pytest.mark.parametrize(
    "filters, names",
    [
        ({}, ["later", "cancelled", "processing", "retry", "failed", "done", "pending b"]),
        ({"status": "pending"}, ["later", "retry", "pending b"]),
        ({"status": "processing"}, ["processing"]),
        ({"status": "done"}, ["done"]),
        ({"status": "failed"}, ["failed"]),
        ({"status": "cancelled"}, ["cancelled"]),
        ({"queue": "b"}, ["pending b"]),
        ({"task": "two"}, ["pending b"]),
        ({"lane": "retry", "status": "pending"}, ["retry"]),
        ({"lane": "fresh", "status": "pending", "queue": "default"}, ["later"]),
        ({"tag": "odd"}, ["cancelled"]),
        ({"tag": "even", "status": "done"}, ["done"]),
        ({"tag": "eve"}, []),
        ({"queue": "nosuch"}, []),
        ({"schedule": "nosuch"}, []),
        ({"limit": 2}, ["later", "cancelled"]),
        ({"limit": 0}, []),
    ],
    ids=lambda value: ",".join(f"{key}={one}" for key, one in value.items()) or "all" if isinstance(value, dict) else "",
)
async def test_filters_and_order(app: Mulligan, filters: dict[str, Any], names: list[str]) -> None:
    """Every given filter must match; the newest job comes first (O14)."""
    made = await make_zoo(app)
    assert [job.id async for job in app.jobs(**filters)] == [made[name] for name in names]


async def test_pages_join_without_gap_or_repeat(app: Mulligan) -> None:
    """More jobs than a page holds come all, once, newest first; a limit may end inside or at the edge of a page."""

    @app.task
    async def work(number: int) -> None: ...

    handles = await app.enqueue_many([work.job(number) for number in range(1_234)])
    newest_first = [handle.id for handle in reversed(handles)]
    assert [job.id async for job in app.jobs()] == newest_first
    for limit in (1, 499, 500, 501, 1_000, 1_234, 5_000):
        assert [job.id async for job in app.jobs(limit=limit)] == newest_first[:limit]


async def test_jobs_that_come_while_paging_do_not_disturb_it(app: Mulligan) -> None:
    """A listing is a walk back in time: newer jobs do not enter it, and no older one is skipped or repeated."""

    @app.task
    async def work(number: int) -> None: ...

    handles = await app.enqueue_many([work.job(number) for number in range(600)])
    seen: list[str] = []
    async for job in app.jobs():
        if len(seen) == 100:
            await app.enqueue_many([work.job(number) for number in range(600)])
        seen.append(job.id)
    assert seen == [handle.id for handle in reversed(handles)]


async def test_get_brings_the_history(app: Mulligan) -> None:
    """get shows the job whole: counters, error, and one record for each claim that did not simply succeed (O12)."""

    @app.task(retry=RetryPolicy(max_retries=2))
    async def work() -> None: ...

    handle = await work.enqueue()
    [lease] = await app.claim()
    await lease.fail("refused", code=111, exception_type="ConnectionError", traceback="line 1\nline 2", after=0)
    while not (leases := await app.claim()):
        await asyncio.sleep(0.001)
    await leases[0].fail("given up", retry=False)
    job = await app.get(handle.id)
    assert (job.status, job.task, job.attempts, job.failures, job.max_retries, job.remaining_retries) == ("failed", "work", 2, 2, 2, 1)
    assert [(record.fence, record.attempt, record.outcome) for record in job.history] == [(1, 1, "failure"), (2, 2, "failure")]
    first = job.history[0].error
    assert first is not None
    assert (first.type, first.message, first.code, first.traceback) == ("ConnectionError", "refused", "111", "line 1\nline 2")
    assert job.last_error is not None
    assert job.last_error.message == "given up"
    assert all(record.why for record in job.history)
    assert [job.history async for job in app.jobs()] == [()]  # a listing does not carry histories


async def test_an_unknown_id_is_not_found(app: Mulligan) -> None:
    """get, cancel and requeue of an id that no job has, well formed or not, say so."""
    for job_id in (new_id(0), "", "x", "../etc", "0" * 10_000, None, 7, "\ud800", "a\0b"):
        for call in (app.get, app.cancel, app.requeue):
            with pytest.raises(JobNotFound, match="no job has the id") as caught:
                await call(job_id)  # type: ignore[arg-type]
            assert len(str(caught.value)) < 300


@pytest.mark.parametrize("filters, part", [({"status": "dead"}, "pending, processing, done"), ({"lane": "fast"}, "fresh or retry")])
async def test_a_filter_that_can_never_match_is_refused(app: Mulligan, filters: dict[str, Any], part: str) -> None:
    """A misspelt status or lane is told with the right ones, not answered with nothing."""
    with pytest.raises(BadSetting, match=part):
        [job async for job in app.jobs(**filters)]


def test_r08_the_status_of_a_queue(backend: str, tmp_path: Path) -> None:
    """Sizes per lane, what is ready, what runs and for how long, what rests, and who is paused, per queue (R08)."""

    async def scene(stage: Stage) -> None:
        app = stage.app

        @app.task(queue="region")
        async def long(kind: str) -> None:
            if kind == "fail":
                raise Fail("x")
            if kind == "retry":
                raise ConnectionError
            await asyncio.sleep(100)

        assert (await app.status()).queues == []
        await long.enqueue("fail")
        await long.options(retry=RetryPolicy(jitter="none")).enqueue("retry")
        longest = await long.enqueue("sleep")
        await long.options(delay=1_000).enqueue("sleep")
        async with stage.worker(concurrency=3):
            await asyncio.sleep(0.5)
            await long.enqueue("sleep")
            await long.enqueue("sleep")
            await asyncio.sleep(0.3)
            await long.enqueue("sleep")
            await app.pause("default", reason="maintenance")
            status = await app.status()
            region = status["region"]
            assert (region.region, region.queue_size, region.retry_queue_size) == ("region", 2, 1)
            assert (region.ready, region.retry_ready, region.processing, region.running, region.stuck) == (1, 0, True, 3, 0)
            assert (region.done, region.failed, region.cancelled, region.paused) == (0, 1, 0, False)
            assert region.current_job is not None
            assert (region.current_job.job_id, region.current_job.task) == (longest.id, "long")
            assert (region.current_job.retry_count, region.current_job.is_retry) == (0, False)
            assert region.current_job.running_s == pytest.approx(0.8, abs=0.01)
            assert region.oldest_ready_s == pytest.approx(0, abs=0.01)
            assert region.next_due_in_s == pytest.approx(0.2, abs=0.01)
            assert (status["default"].paused, status["default"].pause_reason) == (True, "maintenance")
            assert [worker.queues for worker in status.workers] == [("default", "region")]
            assert status.at.timestamp() == stage.clock.now_us() / 1e6
            with pytest.raises(UnknownQueue, match="known: default, region"):
                status["nosuch"]

    play(backend, tmp_path, scene)
