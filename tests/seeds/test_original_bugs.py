"""The bugs of the source designs. Where it is short, the original's logic stands beside ours and is shown to have the bug."""

from __future__ import annotations

import asyncio
import importlib
from datetime import timedelta
from pathlib import Path

import pytest

from mulligan import BadPolicy, Constant, Exponential, Mulligan, Queue, RetryPolicy, UnknownTask, Weighted
from mulligan.core.change import Held
from mulligan.core.clock import ManualClock
from tests import builders
from tests.conftest import url_of
from tests.faults import FaultyStore
from tests.seeds import scenes
from tests.seeds.originals import OriginalRow, OriginalTable, original_execute, original_next_retry, original_region_loop
from tests.seeds.scenes import IDLE, Flaky, Watched, change_store, crash_worker, drained, make_retries, nothing, start_order, successor
from tests.virtual import Stage, play

CALM = RetryPolicy(jitter="none")


def test_settling_by_id_alone(backend: str, tmp_path: Path) -> None:
    """Original: every outcome is written to the id, so a stale worker's late retry turns a finished job back into a waiting one."""
    original = OriginalTable()
    assert original.claim(0)
    original.reclaim_stuck(700)
    assert original.claim(700)
    original.mark_done(710)
    original.mark_retry(720, 5)  # the first worker wakes up
    assert original.task["status"] == "pending"

    async def scene(stage: Stage) -> None:
        flaky = Flaky(stage, failures=0)
        handle = await flaky.task.enqueue()
        [stale] = await stage.app.claim(lease=10)
        async with stage.worker():
            await asyncio.sleep(20)
        assert await stale.fail("I was only asleep") is False
        assert await stale.complete("mine") is False
        job = await handle.job()
        assert (job.status, job.result, job.failures) == ("done", "up", 0)

    play(backend, tmp_path, scene)


async def test_counting_one_execution_twice(backend: str, tmp_path: Path) -> None:
    """Original: the reclaim counts an attempt, then the stale worker's retry counts the same execution again."""
    original = OriginalTable()
    assert original.claim(0)
    original.reclaim_stuck(700)
    original.mark_retry(720, 5)
    assert original.task["attempts"] == 2

    clock = ManualClock()
    async with Mulligan(url_of(backend, tmp_path), clock=clock) as app:
        app.declare("work")
        handle = await app.enqueue("work")
        [stale] = await app.claim(lease=10)
        clock.advance(11)
        [lapsed] = await app.store.overdue(10)
        await app.store.settle([builders.crash(lapsed)])
        assert await stale.fail("late") is False
        job = await handle.job()
    assert (job.attempts, job.crashes, job.failures) == (1, 1, 0)


async def test_a_limit_enforced_by_a_later_sweep(backend: str, tmp_path: Path) -> None:
    """Original: a sweep marks jobs over the limit as failed, so one is claimed and run once more if the claim comes first."""
    original = OriginalTable(attempts=10)
    assert original.claim(0)
    original.mark_retry(1, 0)
    assert original.task["attempts"] == 11
    assert original.claim(2)  # beyond the limit, and running
    original.fail_exhausted()

    clock = ManualClock()
    async with Mulligan(url_of(backend, tmp_path), clock=clock) as app:
        app.declare("work", retry=RetryPolicy(max_retries=1))
        handle = await app.enqueue("work")
        for _ in range(2):
            [lease] = await app.claim()
            await lease.fail("down", after=0)
            clock.advance(1)
        assert await app.claim() == []
        assert (await handle.job()).status == "failed"


def test_a_live_long_job_stolen_because_nothing_renews_it(backend: str, tmp_path: Path) -> None:
    """Original: processing for more than ten minutes means stuck, whether or not its worker is alive."""
    original = OriginalTable()
    assert original.claim(0)
    original.reclaim_stuck(1_200)
    assert original.claim(1_200)  # runs twice at the same time

    async def scene(stage: Stage) -> None:
        flaky = Flaky(stage, failures=0, lasts_s=150, timeout=None)
        handle = await flaky.task.enqueue()
        async with stage.worker(lease=60, poll=6, sweep=6), stage.worker(lease=60, poll=6, sweep=6):
            await asyncio.sleep(160)
        assert len(flaky.starts) == 1
        job = await handle.job()
        assert (job.status, job.fence, job.crashes) == ("done", 1, 0)

    play(backend, tmp_path, scene)


async def test_a_reclaim_that_keeps_an_old_retry_time(backend: str, tmp_path: Path) -> None:
    """Original: neither claim nor reclaim clears the retry time, so a job claimed by a fast clock goes back invisible."""
    original = OriginalTable()
    assert original.claim(0)
    original.mark_retry(0, 1_000)
    assert original.claim(1_000)  # the claimer's clock runs 900 s ahead
    original.task["updated_at"] = 100
    original.reclaim_stuck(701)
    assert not original.claim(701)

    clock = ManualClock()
    async with Mulligan(url_of(backend, tmp_path), clock=clock, retry=RetryPolicy(backoff=Constant(100), jitter="none")) as app:
        app.declare("work")
        handle = await app.enqueue("work")
        [lease] = await app.claim()
        await lease.fail("down")
        clock.advance(100)
        await app.claim(lease=10)
        assert (await handle.job()).run_at is None
        clock.advance(-50)  # the store's clock was ahead, and was set right
        await app.store.settle([builders.crash(await handle.job(), guard=Held(2))])
        [again] = await app.claim()
        assert again.id == handle.id


def test_a_power_that_overflows_before_the_cap() -> None:
    """Original: min(base * factor ** (n - 1), cap) raises OverflowError from n = 1025 on."""
    with pytest.raises(OverflowError):
        min(5 * 2.0 ** (1_025 - 1), 1_800)
    policy = RetryPolicy(backoff=Exponential(base=5, factor=2.0, cap=1_800), jitter="none")
    assert [policy.raw_delay(n) for n in (1_024, 1_025, 10**6, 10**30)] == [1_800] * 4


BAD_POLICIES = [
    "null",
    "[]",
    "",
    '{"v":1,"backoff":["exponential",NaN,2,9]}',
    '{"v":1,"backoff":["exponential",-5,2,9]}',
    '{"v":1,"retries":"x"}',
]


@pytest.mark.parametrize("text", BAD_POLICIES)
def test_a_bad_policy_that_raises_inside_the_failure_path(backend: str, tmp_path: Path, text: str) -> None:
    """Original: NaN and null raise while the failure is handled, which strands the job; a negative base lies in the past."""
    with pytest.raises(ValueError, match="NaN"):
        original_next_retry({"backoff_policy": {"base_sec": float("nan")}})
    with pytest.raises(AttributeError):
        original_next_retry({"backoff_policy": None})
    assert original_next_retry({"backoff_policy": {"base_sec": -5}}) < timedelta()
    for base in (float("nan"), float("inf"), -5, 0):
        with pytest.raises(BadPolicy, match="base"):
            Exponential(base=base)

    async def scene(stage: Stage) -> None:
        flaky = Flaky(stage, failures=2)
        new = builders.new_job("default", task="flaky", policy=text)
        await stage.app.store.insert([new])
        await drained(stage)
        job = await stage.app.get(new.id)
        assert (job.status, job.failures) == ("done", 2)
        assert "could not be read" in job.history[0].why
        assert max(flaky.waits) <= 2

    play(backend, tmp_path, scene)


async def test_a_share_of_a_batch_of_one_that_truncates_to_nothing(backend: str, tmp_path: Path) -> None:
    """Original: int(0.2 * batch) retries per batch, which is none for batches of one to four, for ever."""
    assert [int(0.2 * batch) for batch in (1, 2, 3, 4)] == [0, 0, 0, 0]
    async with Mulligan(url_of(backend, tmp_path), clock=ManualClock()) as app:
        app.queues(Queue("q", claim=Weighted(retry_share=0.2)))
        task = app.task(name="work", queue="q")(nothing)
        await make_retries(app, task, 10)
        await app.enqueue_many([task.job() for _ in range(100)])
        line = [job.is_retry for job in await start_order(app, "q", 20)]
    assert sum(line) == pytest.approx(4, abs=1)


async def test_an_in_flight_cap_kept_in_one_process(backend: str, tmp_path: Path) -> None:
    """Original: a counter in each fetcher, so two processes run twice the cap; ours is counted by the store, inside the claim."""
    in_flight = [0, 0]
    for fetcher in range(2):
        while in_flight[fetcher] < 5:
            in_flight[fetcher] += 1
    assert sum(in_flight) == 10
    async with Mulligan(url_of(backend, tmp_path)) as app:
        await make_retries(app, app.task(name="work", queue="q")(nothing), 20)
        fetchers = [app, Mulligan("memory://")]
        fetchers[1].store = app.store
        for one in fetchers:
            one.queues(Queue("q", max_inflight_retries=5))
        assert sum([len(await one.claim(queue="q", limit=10)) for one in fetchers]) == 5


def test_a_status_shown_as_failed_between_two_writes(backend: str, tmp_path: Path) -> None:
    """Original: FAILED is saved, and QUEUED later; an operator who requeues in between submits the same job a second time."""
    original = OriginalRow()
    original.fail_and_retry(original.requeue)
    assert original.submissions == 2

    async def scene(stage: Stage) -> None:
        flaky = Flaky(stage, failures=3, retry=CALM)
        store = change_store(stage.app, Watched(stage.app.store))
        handle = await flaky.task.enqueue()
        answers: list[bool] = []

        async def meddle() -> None:
            while True:
                answers.append(await stage.app.requeue(handle.id))
                await asyncio.sleep(0.1)

        operator = asyncio.create_task(meddle())
        await drained(stage)
        operator.cancel()
        assert [status for status, *_ in store.seen if status != "processing"].count("failed") == 0
        assert len(answers) > 50
        assert not any(answers)
        assert len(flaky.starts) == 4

    play(backend, tmp_path, scene)


def test_a_delay_kept_in_an_in_memory_scheduler(backend: str, tmp_path: Path) -> None:
    """Original: the row is queued at once and a timer of the process holds the delay, so a crash loses it and a restart ignores it."""
    row, timers = {"status": "QUEUED"}, {"job": 60}
    timers.clear()  # the process dies
    assert (row["status"], timers) == ("QUEUED", {})  # due at once for a restart, due never for the timer

    async def scene(stage: Stage) -> None:
        flaky = Flaky(stage, retry=RetryPolicy(backoff=Constant(60), jitter="none"))
        handle = await flaky.task.enqueue()
        await stage.worker().start()
        await asyncio.sleep(10)
        await crash_worker()
        reborn = await successor(backend, tmp_path, stage)
        assert await reborn.claim() == []
        job = await reborn.get(handle.id)
        assert job.next_retry_at is not None
        assert (job.next_retry_at - job.created_at).total_seconds() == pytest.approx(60, abs=0.1)
        await asyncio.sleep(50.1)
        assert [lease.id for lease in await reborn.claim()] == [handle.id]
        await reborn.close()

    play(backend, tmp_path, scene)


def test_a_retry_queue_that_is_not_watched_while_the_fresh_one_is_empty(backend: str, tmp_path: Path) -> None:
    """Original: with nothing to retry the loop blocks on the fresh queue, and a retry that arrives waits for the next fresh job."""

    async def scene(stage: Stage) -> None:
        fresh: asyncio.Queue[str] = asyncio.Queue()
        retries: asyncio.Queue[str] = asyncio.Queue()
        ran: list[str] = []

        loop = asyncio.create_task(original_region_loop(fresh, retries, ran))
        await asyncio.sleep(1)
        await retries.put("retry")
        await asyncio.sleep(1_000)
        assert ran == []
        loop.cancel()

        flaky = Flaky(stage, failures=1, retry=RetryPolicy(backoff=Constant(30), jitter="none"))
        await flaky.task.enqueue()
        async with stage.worker(**IDLE):
            await asyncio.sleep(40)
        assert flaky.waits == [30]

    play(backend, tmp_path, scene)


def test_a_job_taken_out_of_memory_before_it_ran(backend: str, tmp_path: Path) -> None:
    """Original: the job leaves the queue when it is taken, so a crash while it runs loses it; ours stays stored and runs again."""
    queue = ["job"]
    queue.pop()  # and the process dies here
    assert queue == []

    async def scene(stage: Stage) -> None:
        flaky = Flaky(stage, failures=0, lasts_s=5)
        handle = await flaky.task.enqueue()
        await stage.worker(lease=10).start()
        await asyncio.sleep(1)
        await crash_worker()
        assert (await handle.job()).status == "processing"
        async with stage.worker():
            assert await handle.result(timeout=60) == "up"
        assert len(flaky.starts) == 2

    play(backend, tmp_path, scene)


def test_a_swallowed_cancellation_that_makes_a_job_vanish(backend: str, tmp_path: Path) -> None:
    """Original: `except Exception` misses CancelledError, so a job that is cancelled at shutdown is neither done nor put back."""

    async def scene(stage: Stage) -> None:
        put_back: list[str] = []

        task = asyncio.create_task(original_execute(100, put_back))
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.wait([task])
        assert put_back == []

        flaky = Flaky(stage, failures=0, lasts_s=100)
        handle = await flaky.task.enqueue()
        async with stage.worker(grace=0):
            await asyncio.sleep(1)
        job = await handle.job()
        assert (job.status, job.attempts, job.releases) == ("pending", 0, 1)

    play(backend, tmp_path, scene)


def test_a_storage_error_after_success_recorded_as_a_failure(backend: str, tmp_path: Path) -> None:
    """Original: one `except` around work and acknowledgement, so finished work is recorded as failed and runs again."""
    log: list[str] = []
    try:
        log.append("worked")
        raise ConnectionError("the store is away")
    except ConnectionError:
        log.append("recorded as failed")
    assert log == ["worked", "recorded as failed"]

    async def scene(stage: Stage) -> None:
        flaky = Flaky(stage, failures=0)
        store = change_store(stage.app, FaultyStore(stage.app.store))
        handle = await flaky.task.enqueue()
        store.fail("settle", times=3)
        await drained(stage)
        job = await handle.job()
        assert (job.status, job.failures, job.history, len(flaky.starts)) == ("done", 0, (), 1)

    play(backend, tmp_path, scene)


def test_an_interval_schedule_that_shares_a_field_with_the_retry(backend: str, tmp_path: Path) -> None:
    """Original: a retry moves the task's one ETA, so the next occurrence follows from the retry instead of from the schedule."""
    task = {"eta": 60, "interval": 60}
    task["eta"] = 60 + 40  # the retry of the first occurrence
    task["eta"] += task["interval"]
    assert task["eta"] == 160

    async def scene(stage: Stage) -> None:
        flaky = Flaky(stage, failures=1, name="check", retry=RetryPolicy(backoff=Constant(40), jitter="none"))
        await stage.app.enqueue("check", interval=60)
        async with stage.worker():
            await asyncio.sleep(190)
        assert [round(at_s) for at_s in flaky.starts] == [60, 100, 120, 180]

    play(backend, tmp_path, scene)


def test_unlimited_retries_that_raise(backend: str, tmp_path: Path) -> None:
    """Original: `attempts < max_retries` with None raises TypeError while the failure is handled."""
    with pytest.raises(TypeError):
        assert 1 < None  # type: ignore[operator]

    async def scene(stage: Stage) -> None:
        flaky = Flaky(stage, failures=7, retry=RetryPolicy(max_retries=None, max_age=100_000).over(CALM))
        handle = await flaky.task.enqueue()
        await drained(stage)
        assert ((await handle.job()).status, len(flaky.starts)) == ("done", 8)

    play(backend, tmp_path, scene)


def test_any_import_path_callable_from_a_payload(backend: str, tmp_path: Path) -> None:
    """Original: the worker imports whatever path a stored task names; ours runs only what is registered or allowed."""
    module, _, name = "tests.seeds.scenes.trap".rpartition(".")
    getattr(importlib.import_module(module), name)("original")
    assert scenes.trapped == ["original"]
    scenes.trapped.clear()

    async def scene(stage: Stage) -> None:
        paths = ["tests.seeds.scenes.trap", "tests.seeds.scenes:trap", "os.system", "tests.virtual.run_virtual", "tests.virtual.__class__"]
        for path in paths:
            with pytest.raises(UnknownTask):
                await stage.app.enqueue(path, args=["ours"])
        jobs = [builders.new_job("default", task=path, payload='{"args":["ours"],"kwargs":{}}') for path in paths]
        await stage.app.store.insert(jobs)
        async with stage.worker():
            await asyncio.sleep(100)
        stored = [await stage.app.get(job.id) for job in jobs]
        assert {(job.status, job.attempts) for job in stored} == {("pending", 0)}
        assert all("does not know the task" in job.history[0].why for job in stored)

    play(backend, tmp_path, scene, allow_paths=["tests.virtual_things"])
    assert scenes.trapped == []
