"""R: the two-tier region queue's behaviours. The timeline (R07) stands in a file of its own."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from mulligan import BadSetting, Constant, Context, Fail, Mulligan, Queue, RetryFirst, RetryPolicy
from mulligan.core.clock import ManualClock
from tests.conftest import url_of
from tests.seeds.scenes import IDLE, Flaky, drained, make_retries, nothing, start_order
from tests.virtual import Stage, play

REGION = RetryPolicy.preset("region-queue")
DOCUMENTED = ["region", "queue_size", "retry_queue_size", "processing", "current_job"]


async def test_r01_due_retries_come_before_fresh_jobs_by_due_time(backend: str, tmp_path: Path) -> None:
    """Retries start in the order of their due times, then fresh jobs; a retry that is not yet due stops nobody."""
    clock = ManualClock()
    async with Mulligan(url_of(backend, tmp_path), clock=clock) as app:
        app.queues(Queue("us", claim=RetryFirst()))
        app.declare("work", queue="us")
        late, early, middle, far = [await app.enqueue("work") for _ in range(4)]
        waits = {late.id: 3, early.id: 1, middle.id: 2, far.id: 60}
        for lease in await app.claim(queue="us", limit=4):
            assert await lease.fail("down", after=waits[lease.id])
        fresh = [await app.enqueue("work") for _ in range(3)]
        clock.advance(0.5)
        assert [job.id for job in await start_order(app, "us", 1)] == [fresh[0].id]
        clock.advance(10)
        order = [job.id for job in await start_order(app, "us", 6)]
    assert order == [early.id, middle.id, late.id, fresh[1].id, fresh[2].id]


def test_r02_later_failures_return_to_the_retry_lane(backend: str, tmp_path: Path) -> None:
    """A job that fails again is again ahead of the fresh jobs, each time."""

    async def scene(stage: Stage) -> None:
        stage.app.queues(Queue("us", claim=RetryFirst(), hold_slot_up_to=60))
        ran: list[str] = []

        @stage.app.task(queue="us", retry=REGION)
        async def work(ctx: Context, name: str) -> None:
            ran.append(f"{name}:{ctx.job.lane}")
            if name == "A" and ctx.attempt < 4:
                raise ConnectionError

        handle = await work.enqueue("A")
        for name in "BC":
            await work.enqueue(name)
        await drained(stage, concurrency=1)
        assert ran == ["A:fresh", "A:retry", "A:retry", "A:retry", "B:fresh", "C:fresh"]
        assert (await handle.job()).failures == 3

    play(backend, tmp_path, scene)


def test_r03_an_exhausted_job_is_failed_and_in_neither_lane(backend: str, tmp_path: Path) -> None:
    """After three retries the job is stored as failed, counted in no lane, and nothing claims it."""

    async def scene(stage: Stage) -> None:
        flaky = Flaky(stage, queue="us", retry=REGION)
        handle = await flaky.task.enqueue()
        await drained(stage)
        status = (await stage.app.status())["us"]
        assert (status.queue_size, status.retry_queue_size, status.failed, status.processing) == (0, 0, 1, False)
        await asyncio.sleep(1_000)
        assert await stage.app.claim(queue="us", limit=10) == []
        assert (await handle.job()).status == "failed"
        assert len(flaky.starts) == 4

    play(backend, tmp_path, scene)


def test_r04_the_preset_waits_two_to_the_n(backend: str, tmp_path: Path) -> None:
    """2, 4, 8, 16, 32 s, then 60 s."""
    assert [REGION.raw_delay(n) for n in range(1, 8)] == [2, 4, 8, 16, 32, 60, 60]

    async def scene(stage: Stage) -> None:
        flaky = Flaky(stage, queue="us", retry=REGION)
        await flaky.task.enqueue()
        await drained(stage)
        assert flaky.waits == [2, 4, 8]

    play(backend, tmp_path, scene)


def test_r05_an_idle_worker_wakes_when_a_retry_falls_due(backend: str, tmp_path: Path) -> None:
    """With nothing fresh waiting and an hour between two polls, the retry starts at its time, to the hundredth of a second."""

    async def scene(stage: Stage) -> None:
        flaky = Flaky(stage, failures=2, retry=RetryPolicy(backoff=Constant(7.25), jitter="none"))
        async with stage.worker(**IDLE):
            await asyncio.sleep(1)
            await flaky.task.enqueue()
            await asyncio.sleep(100)
        assert flaky.starts == [pytest.approx(at_s, abs=0.01) for at_s in (1, 8.25, 15.5)]

    play(backend, tmp_path, scene)


def test_r06_regions_do_not_wait_for_each_other(backend: str, tmp_path: Path) -> None:
    """A region drowned in failing retries, and then paused, leaves the other region's jobs starting the moment they come."""

    async def scene(stage: Stage) -> None:
        app = stage.app
        app.queues(Queue("us", claim=RetryFirst()), Queue("eu", claim=RetryFirst()))
        drowned = Flaky(stage, queue="us", retry=RetryPolicy(max_retries=1_000, backoff=Constant(0.5), jitter="none"), lasts_s=0.2)
        starts: list[float] = []

        @app.task(queue="eu")
        async def europe() -> None:
            starts.append(stage.elapsed_s)

        await make_retries(app, drowned.task, 50)
        async with stage.worker(concurrency=60):
            for second in range(1, 11):
                await asyncio.sleep(1)
                await europe.enqueue()
                if second == 5:
                    await app.pause("us")
            await asyncio.sleep(1)
            assert starts == [pytest.approx(second, abs=0.01) for second in range(1, 11)]
            assert max(drowned.starts) < 5.5
            status = await app.status()
            assert (status["us"].paused, status["us"].retry_queue_size, status["eu"].paused, status["eu"].done) == (True, 50, False, 10)

    play(backend, tmp_path, scene)


def test_r06_a_region_on_its_own_worker_is_the_only_one_served(backend: str, tmp_path: Path) -> None:
    """A worker of one region never takes the other's jobs, fresh or retried."""

    async def scene(stage: Stage) -> None:
        app = stage.app
        flaky = {name: Flaky(stage, 1, name=name, queue=name, retry=RetryPolicy(jitter="none")) for name in ("us", "eu")}
        for one in flaky.values():
            await one.task.enqueue()
        await drained(stage, queues=["eu"])
        assert [len(flaky[name].starts) for name in ("us", "eu")] == [0, 2]
        assert {job.queue: job.status async for job in app.jobs()} == {"us": "pending", "eu": "done"}

    play(backend, tmp_path, scene)


def test_r08_the_status_of_a_queue_has_the_documented_fields(backend: str, tmp_path: Path) -> None:
    """The document's own example: ten fresh jobs, two retries, and a retry that is running for the second time."""

    async def scene(stage: Stage) -> None:
        app = stage.app
        app.queues(Queue("US", claim=RetryFirst()))
        app.declare("work", queue="US")
        current, first, second = [await app.enqueue("work") for _ in range(3)]
        waits = {current.id: 1, first.id: 2, second.id: 500}
        for lease in await app.claim(queue="US", limit=3):
            await lease.fail("down", after=waits[lease.id])
        for _ in range(10):
            await app.enqueue("work")
        await asyncio.sleep(2.5)
        await app.claim(queue="US", limit=1)
        shown = msgspec.to_builtins((await app.status())["US"])
        assert list(shown)[:5] == DOCUMENTED
        assert {name: shown[name] for name in DOCUMENTED[:4]} == {
            "region": "US",
            "queue_size": 10,
            "retry_queue_size": 2,
            "processing": True,
        }
        assert {name: shown["current_job"][name] for name in ("job_id", "retry_count", "is_retry")} == {
            "job_id": current.id,
            "retry_count": 1,
            "is_retry": True,
        }

    play(backend, tmp_path, scene)


def test_r08_a_queue_at_rest_shows_no_current_job(backend: str, tmp_path: Path) -> None:
    """Nothing runs, so nothing is named; a fresh job that runs is no retry."""

    async def scene(stage: Stage) -> None:
        app = stage.app
        app.declare("work", queue="US")
        handle = await app.enqueue("work")
        shown = (await app.status())["US"]
        assert (shown.queue_size, shown.processing, shown.current_job) == (1, False, None)
        await app.claim(queue="US")
        shown = (await app.status())["US"]
        assert shown.current_job is not None
        assert (shown.queue_size, shown.processing) == (0, True)
        assert (shown.current_job.job_id, shown.current_job.retry_count, shown.current_job.is_retry) == (handle.id, 0, False)

    play(backend, tmp_path, scene)


def test_r10_log_lines_tell_a_retry_from_a_regular_job(backend: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The first run is logged as regular, the second as a retry, both with the job's id."""
    caplog.set_level(logging.DEBUG, logger="mulligan.jobs")

    async def scene(stage: Stage) -> str:
        flaky = Flaky(stage, failures=1)
        handle = await flaky.task.enqueue()
        await drained(stage)
        return str(handle.id)

    job_id = play(backend, tmp_path, scene)
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("Processing")]
    assert lines == [f"Processing regular job: flaky {job_id}", f"Processing RETRY job: flaky {job_id} (attempt 2)"]


async def test_r11_urgent_comes_first_and_nobody_waits_for_ever(backend: str, tmp_path: Path) -> None:
    """One job of each level starts from urgent to normal; under a flood of urgent work the lower levels keep their small share."""
    async with Mulligan(url_of(backend, tmp_path), clock=ManualClock()) as app:
        app.declare("work", queue="q")
        for priority in (0, 1, 2):
            await app.enqueue("work", priority=priority)
        assert [job.priority for job in await start_order(app, "q", 1, 3)] == [2, 1, 0]
        task = app.task(name="work", queue="q")(nothing)
        await app.enqueue_many([task.options(priority=number % 3).job() for number in range(300)])
        shares = Counter(job.priority for job in await start_order(app, "q", 10, 10))
        assert [shares[level] for level in (2, 1, 0)] == [pytest.approx(share, abs=2) for share in (70, 20, 10)]
        for wrong in (3, -1, True, "urgent"):
            with pytest.raises(BadSetting, match="priority"):
                await app.enqueue("work", priority=wrong)


def test_r11_a_retry_keeps_its_level_and_is_reported_by_its_lane(backend: str, tmp_path: Path) -> None:
    """Level 1 of the design, "retry", is the retry lane: told apart everywhere without changing the level the user gave."""

    async def scene(stage: Stage) -> None:
        seen: list[tuple[int, bool]] = []

        @stage.app.task(priority=2)
        async def work(ctx: Context) -> None:
            seen.append((ctx.job.priority, ctx.job.is_retry))
            if len(seen) == 1:
                raise ConnectionError
            raise Fail("enough")

        handle = await work.enqueue()
        await drained(stage)
        assert seen == [(2, False), (2, True)]
        told = [event.detail.get("is_retry", False) for event in stage.app.events.recent(100) if event.kind == "PROCESSING"]
        assert told == [False, True]
        assert (await handle.job()).priority == 2

    play(backend, tmp_path, scene)
