"""W: the starvation-free retry strategy's behaviours."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from mulligan import BadPolicy, BadSetting, Context, Exponential, Mulligan, Queue, RetryPolicy, StoreRejected, Weighted
from mulligan import admin as admin_module
from mulligan import lease as lease_module
from mulligan.core.clock import ManualClock
from mulligan.policy.decide import decide
from mulligan.worker import executor as executor_module
from mulligan.worker import sweeper as sweeper_module
from tests import builders
from tests.conftest import url_of
from tests.faults import FaultyStore
from tests.seeds.scenes import IDLE, Flaky, change_store, drained, make_retries, nothing, start_order
from tests.virtual import Stage, play

WEAVE = RetryPolicy.preset("weave")


def test_w01_causes_are_kept_apart_and_decided_in_one_place(backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler's error, a lost lease and an outcome that cannot be committed end in different records of one policy function."""
    decided: list[str] = []

    def spy(job: Any, outcome: Any, *args: Any, **kwargs: Any) -> Any:
        decided.append(type(outcome).__name__)
        return decide(job, outcome, *args, **kwargs)

    for module in (executor_module, sweeper_module, lease_module, admin_module):
        assert module.decide is decide
        monkeypatch.setattr(module, "decide", spy)

    async def scene(stage: Stage) -> None:
        app = stage.app
        flaky = Flaky(stage, failures=1, retry=RetryPolicy(jitter="none"))
        store = change_store(app, FaultyStore(app.store))
        nacked, expired, refused, interrupted = [await flaky.task.options(delay=at_s).enqueue() for at_s in (0, 10, 30, 40)]
        async with stage.worker():
            await asyncio.sleep(5)
            assert await nacked.result() == "up"
            await stage.app.pause("default")
            await asyncio.sleep(10)
        await stage.app.resume("default")
        [held] = await app.claim(lease=5)
        assert held.id == expired.id
        async with stage.worker():
            await asyncio.sleep(13)
            assert await expired.result() == "up"
            store.fail("settle", error=StoreRejected("injected: this row is not accepted"))
            await asyncio.sleep(10)
            store.fail("settle", times=3)
            await asyncio.sleep(10)
        histories = [[record.outcome for record in (await handle.job()).history] for handle in (nacked, expired, refused, interrupted)]
        assert histories == [["failure"], ["crash"], ["unstorable"], []]
        assert [(await handle.job()).failures for handle in (nacked, expired, refused, interrupted)] == [1, 0, 0, 0]
        assert (await refused.job()).status == "failed"
        assert (await interrupted.job()).status == "done"
        assert {"Raised", "LeaseLost", "Unstorable"} <= set(decided)

    play(backend, tmp_path, scene)


@pytest.mark.parametrize("retries", [0, 1, 4])
def test_w02_n_retries_are_at_most_n_plus_one_executions(backend: str, tmp_path: Path, retries: int) -> None:
    """Each failure below the limit counts up, sets a time and goes back to pending; the one at the limit is failed."""

    async def scene(stage: Stage) -> None:
        flaky = Flaky(stage, retry=RetryPolicy(max_retries=retries).over(WEAVE))
        handle = await flaky.task.enqueue()
        await drained(stage, **IDLE)
        assert len(flaky.starts) == retries + 1
        job = await handle.job()
        assert (job.status, job.attempts, job.failures) == ("failed", retries + 1, retries + 1)
        scheduled = [event for event in stage.app.events.recent(1_000) if event.kind == "RETRY_SCHEDULED"]
        assert [event.detail["failures"] for event in scheduled] == list(range(1, retries + 1))
        assert all(event.detail["run_at_us"] > event.at_us for event in scheduled)

    play(backend, tmp_path, scene)


def test_w02_a_crash_counts_as_an_execution(backend: str, tmp_path: Path) -> None:
    """With two retries, one crash and two failures use up the three executions."""

    async def scene(stage: Stage) -> None:
        flaky = Flaky(stage, retry=RetryPolicy(max_retries=2).over(WEAVE))
        handle = await flaky.task.enqueue()
        await stage.app.claim(lease=5)
        async with stage.worker():
            await asyncio.sleep(30)
        job = await handle.job()
        assert (job.status, job.attempts, job.crashes, job.failures) == ("failed", 3, 1, 2)
        assert len(flaky.starts) == 2

    play(backend, tmp_path, scene)


def test_w03_the_preset_quadruples_to_its_cap(backend: str, tmp_path: Path) -> None:
    """1, 4, 16, 64, 256 s and then 900 s; a worker waits just that long."""
    assert [WEAVE.raw_delay(n) for n in range(1, 8)] == [1, 4, 16, 64, 256, 900, 900]
    assert WEAVE.delay(4, rng=random.Random(3)) == 64

    async def scene(stage: Stage) -> None:
        flaky = Flaky(stage, retry=WEAVE)
        await flaky.task.enqueue()
        await drained(stage, **IDLE)
        assert flaky.waits == [1, 4, 16, 64, 256]

    play(backend, tmp_path, scene)


async def test_w04_a_job_is_invisible_until_it_is_due(backend: str, tmp_path: Path) -> None:
    """A retry is stored and counted but not claimed before its time, by any claim strategy's lane."""
    clock = ManualClock()
    async with Mulligan(url_of(backend, tmp_path), clock=clock, retry=WEAVE) as app:
        app.declare("work")
        handle = await app.enqueue("work")
        for wait_s in (1, 4, 16):
            [lease] = await app.claim()
            assert await lease.fail("down")
            clock.advance(wait_s - 0.000001)
            assert await app.claim(limit=10) == []
            status = (await app.status())["default"]
            assert (status.retry_queue_size, status.retry_ready) == (1, 0)
            clock.advance(0.000001)
        [lease] = await app.claim(limit=10)
        assert lease.id == handle.id


@pytest.mark.parametrize("concurrency", [1, 10])
def test_w05_the_failures_of_one_job_delay_no_other(backend: str, tmp_path: Path, concurrency: int) -> None:
    """Twenty jobs start at the same seconds whether or not another job fails and backs off all the while."""

    def starts(folder: Path, failures: int) -> list[float]:
        begun: list[float] = []

        async def scene(stage: Stage) -> None:
            flaky = Flaky(stage, failures, retry=RetryPolicy(max_retries=5, jitter="none"))

            @stage.app.task
            async def other() -> None:
                begun.append(round(stage.elapsed_s, 2))
                await asyncio.sleep(0.1)

            await flaky.task.enqueue()
            async with stage.worker(concurrency=concurrency) as worker:
                for _ in range(20):
                    await asyncio.sleep(0.7)
                    await other.enqueue()
                await worker.drain()
            assert len(flaky.starts) == min(failures, 5) + 1

        folder.mkdir()
        play(backend, folder, scene)
        return begun

    calm, troubled = starts(tmp_path / "calm", 0), starts(tmp_path / "troubled", 100)
    assert len(calm) == 20
    assert troubled == calm


async def both_lanes(app: Mulligan, fresh: int, retries: int, claim: Weighted) -> None:
    """So many fresh jobs and due retries in queue q."""
    app.queues(Queue("q", claim=claim))
    task = app.task(name="work", queue="q")(nothing)
    await make_retries(app, task, retries)
    await app.enqueue_many([task.job() for _ in range(fresh)])


async def make_retries_beside_fresh(app: Mulligan, task: Any) -> None:
    """Sixty more due retries, made behind the planner's back, so that its accounts stay as they were."""
    new = [task.job() for _ in range(60)]
    await app.store.insert(new)
    jobs = await builders.claim(app.store, builders.ask("q"), total=60)
    await app.store.settle([builders.retry(job) for job in jobs.jobs])


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 7, 10])
async def test_w06_each_lane_gets_its_share_whatever_the_size_of_a_batch(backend: str, tmp_path: Path, limit: int) -> None:
    """Over many batches retries are a fifth of the starts, to within one, at every point of the line."""
    async with Mulligan(url_of(backend, tmp_path), clock=ManualClock(), rng=random.Random(limit)) as app:
        await both_lanes(app, 300, 300, Weighted(retry_share=0.2))
        line = [job.is_retry for job in await start_order(app, "q", 200 // limit, limit)]
    for length in range(1, len(line) + 1):
        assert abs(sum(line[:length]) - 0.2 * length) <= 1 + 1e-9
    assert sum(line) >= 39


async def test_w06_every_batch_of_ten_has_eight_fresh_jobs_and_two_retries(backend: str, tmp_path: Path) -> None:
    """The guarantee holds for each batch, not only on average."""
    async with Mulligan(url_of(backend, tmp_path), clock=ManualClock(), rng=random.Random(6)) as app:
        await both_lanes(app, 100, 100, Weighted(retry_share=0.2))
        batches = [[job.is_retry for job in await start_order(app, "q", 1, 10)] for _ in range(10)]
    assert {len(batch) for batch in batches} == {10}
    retries = [sum(batch) for batch in batches]
    assert set(retries) <= {2, 3}
    assert retries.count(2) >= 9  # at most one batch redeems credit from before


@pytest.mark.parametrize(("fresh", "retries"), [(30, 0), (0, 30)], ids=["no retries", "no fresh jobs"])
async def test_w06_an_idle_share_is_lent(backend: str, tmp_path: Path, fresh: int, retries: int) -> None:
    """With one lane empty the other fills whole batches."""
    async with Mulligan(url_of(backend, tmp_path), clock=ManualClock(), rng=random.Random(7)) as app:
        await both_lanes(app, fresh, retries, Weighted(retry_share=0.2))
        assert len(await start_order(app, "q", 3, 10)) == 30


async def test_w06_a_lane_that_was_empty_comes_back_to_its_share(backend: str, tmp_path: Path) -> None:
    """Neither arrears nor debts pile up while a lane is empty: the next hundred starts are shared as ever."""
    async with Mulligan(url_of(backend, tmp_path), clock=ManualClock(), rng=random.Random(8)) as app:
        await both_lanes(app, 0, 120, Weighted(retry_share=0.2))
        await start_order(app, "q", 40)
        task = app.task(name="work", queue="q")(nothing)
        await app.enqueue_many([task.job() for _ in range(300)])
        after_retries_only = [job.is_retry for job in await start_order(app, "q", 100)]
        assert sum(after_retries_only) == pytest.approx(20, abs=1)
        await start_order(app, "q", 30, 10)
        await app.enqueue_many([task.job() for _ in range(200)])
        await start_order(app, "q", 100)
        await make_retries_beside_fresh(app, task)
        after_fresh_only = [job.is_retry for job in await start_order(app, "q", 50)]
        assert sum(after_fresh_only) == pytest.approx(10, abs=1)


def test_w06_a_worker_starts_jobs_in_that_share(backend: str, tmp_path: Path) -> None:
    """Fairness holds over starts: of the first fifty jobs that a worker with one slot runs, ten are retries."""

    async def scene(stage: Stage) -> None:
        ran: list[bool] = []
        stage.app.queues(Queue("q", claim=Weighted(retry_share=0.2)))

        @stage.app.task(queue="q")
        async def work(ctx: Context) -> None:
            ran.append(ctx.job.is_retry)
            await asyncio.sleep(1)

        await make_retries(stage.app, work, 60)
        await stage.app.enqueue_many([work.job() for _ in range(60)])
        await drained(stage, concurrency=1)
        assert sum(ran[:50]) == pytest.approx(10, abs=1)
        assert len(ran) == 120

    play(backend, tmp_path, scene)


def test_w11_the_four_settings_exist_and_take_effect(backend: str, tmp_path: Path) -> None:
    """Maximum retries, base backoff, maximum backoff and retry share are settings of a queue, and each shows in what happens."""

    async def scene(stage: Stage) -> None:
        policy = RetryPolicy(max_retries=4, backoff=Exponential(base=2, cap=9), jitter="none")
        stage.app.queues(Queue("q", retry=policy, claim=Weighted(retry_share=0.5)))
        flaky = Flaky(stage, queue="q")
        await flaky.task.enqueue()
        await drained(stage)
        assert flaky.waits == [2, 4, 8, 9]
        await make_retries(stage.app, flaky.task, 40)
        await stage.app.enqueue_many([flaky.task.job() for _ in range(40)])
        line = [job.is_retry for job in await start_order(stage.app, "q", 20)]
        assert sum(line) == pytest.approx(10, abs=1)

    play(backend, tmp_path, scene)


def test_w11_settings_out_of_bounds_are_refused() -> None:
    """A setting that could not work is refused where it is made, and the message names it."""
    with pytest.raises(BadPolicy, match="max_retries"):
        RetryPolicy(max_retries=-1)
    with pytest.raises(BadPolicy, match="base"):
        Exponential(base=0)
    with pytest.raises(BadPolicy, match="cap"):
        Exponential(base=10, cap=5)
    with pytest.raises(BadSetting, match="retry_share"):
        Weighted(retry_share=1.2)
