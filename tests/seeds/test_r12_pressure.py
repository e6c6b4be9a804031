"""R12, R13 and R14: backoff that follows the queue, a budget for retries, and fresh work that is not starved by them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from mulligan import Constant, Context, Mulligan, Queue, RetryBudget, RetryFirst, RetryPolicy
from mulligan.core.clock import ManualClock
from tests.builders import done
from tests.conftest import url_of
from tests.seeds.scenes import Flaky, make_retries, nothing
from tests.virtual import Stage, play

STARTS = 60
ADAPTIVE = RetryPolicy.preset("region-queue-adaptive")


def test_r12_the_preset_is_the_formula_of_the_design() -> None:
    """min(2^n * (1 + size/10), 60), for every n and size."""
    for n in range(1, 12):
        for size in (0, 1, 5, 10, 50, 200, 1_000):
            assert ADAPTIVE.raw_delay(n, depth=size) == pytest.approx(min(2**n * (1 + size / 10), 60))


@pytest.mark.parametrize("size, delay_s", [(0, 2), (5, 3), (50, 12), (400, 60)])
def test_r12_a_worker_waits_longer_while_the_queue_is_full(backend: str, tmp_path: Path, size: int, delay_s: float) -> None:
    """A job that fails while so many others are due and wait is put off by the formula, and its history says why."""

    async def scene(stage: Stage) -> None:
        flaky = Flaky(stage, lasts_s=3, retry=ADAPTIVE)

        @stage.app.task
        async def other() -> None:
            await asyncio.sleep(1_000)

        handle = await flaky.task.enqueue()
        await stage.app.enqueue_many([other.job() for _ in range(size)])
        async with stage.worker(concurrency=1, grace=0):
            await asyncio.sleep(4)
        job = await handle.job()
        assert job.failures == 1
        assert job.last_delay == pytest.approx(delay_s)
        assert (f"{size} jobs waiting" in job.history[0].why) == (size > 0)

    play(backend, tmp_path, scene)


def per_window(starts: list[float], window_s: float) -> int:
    """The most starts that lie within any window of this length."""
    return max(sum(begin <= at_s < begin + window_s for at_s in starts) for begin in starts)


@pytest.mark.parametrize("over, stretched", [("wait", 1), ("backoff", 3)])
@pytest.mark.parametrize("jobs", [40, pytest.param(250, marks=pytest.mark.scale)])
def test_r13_beyond_a_hundred_retries_a_minute_they_wait_and_back_off_longer(
    backend: str, tmp_path: Path, jobs: int, over: str, stretched: int
) -> None:
    """No minute sees more than its hundred retries, no ten seconds more than theirs; meanwhile backoffs are longer, if that is chosen."""

    async def scene(stage: Stage) -> None:
        app = stage.app
        # A hundred at once would be a minute's worth on top of a minute's flow; with one token of burst the minute is exact.
        app.queues(Queue("q", budget=RetryBudget(per_minute=100, burst=1, over=over, stretch=stretched)))  # type: ignore[arg-type]
        starts: list[float] = []

        @app.task(queue="q", retry=RetryPolicy(max_retries=1, backoff=Constant(10), jitter="none"))
        async def work(ctx: Context) -> None:
            if ctx.job.is_retry:
                starts.append(stage.elapsed_s)
            raise ConnectionError

        await app.enqueue_many([work.job() for _ in range(jobs)])
        async with stage.worker(concurrency=200, poll=3_600) as worker:
            await asyncio.sleep(20)  # the first ones wait for tokens by now
            handles = await app.enqueue_many([work.job() for _ in range(10)])
            await worker.drain()
        assert len(starts) == jobs + 10
        assert per_window(starts, 60) <= 101
        assert per_window(starts, 10) <= 18
        delays = {round(record.delay or 0, 1) for handle in handles for record in (await handle.job()).history[:1]}
        assert delays == {10.0 * stretched}

    play(backend, tmp_path, scene)


def test_r13_the_budget_is_one_for_all_workers(backend: str, tmp_path: Path) -> None:
    """Three workers start no more retries than one would."""

    async def scene(stage: Stage) -> None:
        app = stage.app
        starts: list[float] = []

        @app.task(queue="q")
        async def work() -> None:
            starts.append(stage.elapsed_s)

        await make_retries(app, work, 40)
        app.queues(Queue("q", claim=RetryFirst(), budget=RetryBudget(per_s=2, burst=1)))
        async with stage.worker() as one, stage.worker(), stage.worker():
            await one.drain()
        assert len(starts) == 40
        assert per_window(starts, 10) <= 21
        assert 19 <= starts[-1] <= 25

    play(backend, tmp_path, scene)


async def served(backend: str, folder: Path, queue: Queue, pace: Callable[[ManualClock], None]) -> list[bool]:
    """Which of the next starts, one at a time, were retries, with more of both lanes waiting than are started."""
    clock = ManualClock()
    folder.mkdir(exist_ok=True)
    async with Mulligan(url_of(backend, folder), clock=clock, rng=random.Random(14)) as app:
        task = app.task(name="work", queue="q")(nothing)
        await make_retries(app, task, 2 * STARTS)
        await app.enqueue_many([task.job() for _ in range(2 * STARTS)])
        app.queues(queue)
        line = []
        for _ in range(STARTS):
            pace(clock)
            [lease] = await app.claim(queue="q")
            line.append(lease.job.is_retry)
            await app.store.settle([done(lease.job)])
    return line


async def test_r14_with_the_budget_spent_the_queue_falls_back_to_shares(backend: str, tmp_path: Path) -> None:
    """Retries first starves fresh work, even under a budget that the queue could use up; with the fall-back it does not."""

    def flow(clock: ManualClock) -> None:
        clock.advance(0.1)  # a start every tenth of a second, and as many tokens

    budget = RetryBudget(per_s=10, burst=1)
    lines = {
        "no budget": await served(backend, tmp_path / "1", Queue("q", claim=RetryFirst()), flow),
        "wait": await served(backend, tmp_path / "2", Queue("q", claim=RetryFirst(), budget=budget), flow),
        "weighted": await served(
            backend, tmp_path / "3", Queue("q", claim=RetryFirst(), budget=RetryBudget(per_s=10, burst=1, over="weighted")), flow
        ),
    }
    assert sum(lines["no budget"]) == sum(lines["wait"]) == STARTS
    assert 0.2 * STARTS <= sum(lines["weighted"]) <= 0.6 * STARTS  # retries keep their share, too


async def test_r14_retries_come_first_again_when_there_is_budget(backend: str, tmp_path: Path) -> None:
    """While nothing flows in, only fresh jobs start; once there is budget again, the first retry that gets its share shows it."""
    starts = 0

    def pause(clock: ManualClock) -> None:
        nonlocal starts
        starts += 1
        if starts == 30:
            clock.advance(60)

    budget = RetryBudget(per_minute=10, burst=10, over="weighted")
    line = await served(backend, tmp_path, Queue("q", claim=RetryFirst(), budget=budget), pause)
    assert line[:10] == [True] * 10
    assert line[10:29] == [False] * 19
    first = line.index(True, 29)
    assert first < 29 + 6  # one start in five is a retry's
    assert line[first : first + 10] == [True] * 10
    assert not any(line[first + 10 :])
