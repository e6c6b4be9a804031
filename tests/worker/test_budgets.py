"""Retry budgets of a whole fleet: how many retries start, whoever starts them, and what becomes of the others."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mulligan import Constant, Context, Downstream, Queue, RetryBudget, RetryFirst, RetryPolicy
from mulligan.core.limits import TOKEN
from tests.seeds.scenes import make_retries
from tests.virtual import Stage, play

Starts = list[tuple[float, str]]  # when, and in which lane


def counted(stage: Stage, starts: Starts, *, fails: bool = False, lasts_s: float = 0.05, **settings: Any) -> Any:
    """A task that notes when it is started, and in which lane."""

    async def work(ctx: Context) -> None:
        starts.append((stage.elapsed_s, ctx.job.lane))
        await asyncio.sleep(lasts_s)
        if fails:
            raise ConnectionError("down")

    return stage.app.task(**{"queue": "q", **settings})(work)


def check_bound(starts: Starts, budget: RetryBudget) -> None:
    """In every span that begins and ends with a retry: no more of them than the burst, the flow and what fresh starts brought."""
    bucket = budget.bucket("b")
    burst, per_s, ratio = bucket.burst_u / TOKEN, bucket.rate_u / TOKEN, bucket.ratio_u / TOKEN
    # Of each start: what was spent by then beyond what came in by then. Its largest rise over any span is the burst at most.
    spent = fresh = retries = 0.0
    lowest = worst = 0.0
    for at_s, lane in starts:
        fresh += lane == "fresh"
        retries += lane == "retry"
        if lane == "retry":
            spent = retries - per_s * at_s - ratio * fresh
            worst = max(worst, spent - lowest)
        lowest = min(lowest, retries - per_s * at_s - ratio * fresh)
    # A worker wakes half a millisecond late; and a fresh job may start right behind the retry it has paid for, in the same claim.
    assert worst <= burst + per_s * 0.001 + ratio + 1e-6


@pytest.mark.parametrize(
    "budget",
    [
        RetryBudget(per_s=5),
        RetryBudget(per_minute=120, burst=3),
        RetryBudget(ratio=0.25, min_per_s=1, burst=4),
        RetryBudget(ratio=0.5, burst=2),
    ],
    ids=["rate", "rate and burst", "ratio and floor", "ratio"],
)
def test_no_span_has_more_retries_than_the_budget(local_backend: str, tmp_path: Path, budget: RetryBudget) -> None:
    """Three workers, retries waiting all the time, fresh jobs coming: burst + rate · t + ratio · fresh starts is never exceeded."""
    starts: Starts = []

    async def scene(stage: Stage) -> None:
        app = stage.app
        work = counted(stage, starts)
        await make_retries(app, work, 200)
        app.queues(Queue("q", claim=RetryFirst(), budget=budget))
        await app.enqueue_many([work.options(delay=number / 10).job() for number in range(200)])
        async with stage.worker(concurrency=4), stage.worker(concurrency=4), stage.worker(concurrency=4):
            await asyncio.sleep(25)

    play(local_backend, tmp_path, scene)
    check_bound(starts, budget)
    bucket = budget.bucket("b")
    retries, fresh = (sum(lane == name for _, lane in starts) for name in ("retry", "fresh"))
    assert fresh == 200
    # And it is used: what could start did, but for what ran over while three workers were asleep for a moment.
    expected = (bucket.burst_u + 25 * bucket.rate_u + fresh * bucket.ratio_u) / TOKEN
    assert min(200, 0.9 * expected - 2) <= retries <= expected


@pytest.mark.parametrize("concurrency", [1, 100])
def test_a_share_of_fresh_work_is_that_share_for_large_batches_too(local_backend: str, tmp_path: Path, concurrency: int) -> None:
    """Without a burst of its own a budget of a fifth lets a retry start for every five fresh jobs, however many start at once."""
    starts: Starts = []

    async def scene(stage: Stage) -> None:
        work = counted(stage, starts)
        await make_retries(stage.app, work, 200)
        await stage.app.enqueue_many([work.job() for _ in range(600)])
        stage.app.queues(Queue("q", claim=RetryFirst(), budget=RetryBudget(ratio=0.2)))
        async with stage.worker(concurrency=concurrency):
            while sum(lane == "fresh" for _, lane in starts) < 500:
                await asyncio.sleep(0.05)

    play(local_backend, tmp_path, scene)
    retries = sum(lane == "retry" for _, lane in starts)
    assert 100 <= retries <= 20 + 0.2 * len(starts)


@pytest.mark.parametrize(
    ("settings", "downstream"),
    [
        ({"budget": RetryBudget(per_s=2, burst=2)}, None),
        ({"depends_on": "d"}, Downstream("d", breaker=None, budget=RetryBudget(per_s=2, burst=2))),
    ],
    ids=["task", "downstream"],
)
def test_budgets_of_tasks_and_downstreams_are_kept(
    backend: str, tmp_path: Path, settings: dict[str, Any], downstream: Downstream | None
) -> None:
    """Over all queues and workers; retries of other tasks are not held by them."""
    limited: Starts = []
    others: Starts = []

    async def scene(stage: Stage) -> None:
        app = stage.app
        if downstream is not None:
            app.downstreams(downstream)
        one = counted(stage, limited, name="one", queue="q", **settings)
        two = counted(stage, others, name="two", queue="q")
        await make_retries(app, one, 12)
        await make_retries(app, two, 12)
        async with stage.worker(queues=["q"]) as worker, stage.worker(queues=["q"]):
            await worker.drain()

    play(backend, tmp_path, scene)
    check_bound(limited, RetryBudget(per_s=2, burst=2))
    assert len(limited) == len(others) == 12
    assert max(at_s for at_s, _ in others) < 2 < 5 <= max(at_s for at_s, _ in limited)


@pytest.mark.parametrize(
    ("over", "status", "delay_s"),
    [("wait", "pending", 10), ("backoff", "pending", 30), ("fail", "failed", None)],
    ids=["wait", "backoff", "fail"],
)
def test_what_a_failure_beyond_the_budget_comes_to(backend: str, tmp_path: Path, over: Any, status: str, delay_s: float | None) -> None:
    """R13: the usual delay, a longer one, or the end of the job; with a token in the bucket again all is as ever."""

    async def scene(stage: Stage) -> None:
        app = stage.app
        app.queues(Queue("q", budget=RetryBudget(per_minute=6, burst=1, over=over, stretch=3)))
        starts: Starts = []
        policy = RetryPolicy(max_retries=5, backoff=Constant(10), jitter="none")
        fails, works = counted(stage, starts, fails=True, name="fails", retry=policy), counted(stage, starts, name="works", lasts_s=0.01)
        await make_retries(app, works, 1)
        async with stage.worker(poll=3_600):
            while not starts:  # the one token is spent
                await asyncio.sleep(0.01)
            first = await fails.enqueue()
            await asyncio.sleep(1)
            job = await first.job()
            assert (job.status, None if not job.history else job.history[0].delay) == (status, delay_s)
            await asyncio.sleep(100)
            assert (job.failures, job.attempts) == (1, 1)
            late = await fails.enqueue()
            await asyncio.sleep(1)
            if over == "fail":  # nothing has met the bucket since, and yet it has filled
                assert (await late.job()).status == "pending"

    play(backend, tmp_path, scene)
