"""The numbers a queue publishes, from stored state, on every store: ages per lane, what is left of limits, states of breakers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mulligan import Constant, Downstream, Mulligan, Queue, Rate, RetryBudget, RetryPolicy, Separate
from mulligan.fleet import LimitStatus, limits_of
from tests.virtual import Stage, play

SOON = RetryPolicy(max_retries=20, backoff=Constant(1), jitter="none")


def left(limits: list[LimitStatus]) -> dict[tuple[str, str, str, str | None], float]:
    """What is left, by kind, owner, name and lane."""
    return {(one.kind, one.owner, one.name, one.lane): round(one.left, 3) for one in limits}


def test_ages_are_told_per_lane(backend: str, tmp_path: Path) -> None:
    """The longest waiting due job of each lane; what is not due has no age."""

    async def scene(stage: Stage) -> None:
        app = stage.app
        app.declare("work", queue="q", retry=SOON)
        await app.enqueue("work")
        [lease] = await app.claim(queue="q")
        await lease.fail("no")
        await app.enqueue("work")
        await app.enqueue("work", delay=3_600)
        seen = (await app.status())["q"]
        assert (seen.oldest_fresh_s, seen.oldest_retry_s) == (pytest.approx(0, abs=0.1), None)
        await asyncio.sleep(5)
        seen = (await app.status())["q"]
        assert seen.oldest_fresh_s == pytest.approx(5, abs=0.2)
        assert seen.oldest_retry_s == pytest.approx(4, abs=0.2)
        assert seen.oldest_ready_s == seen.oldest_fresh_s
        assert (seen.retries_running, seen.claim, seen.recent) == (0, "", None), "no worker serves it"
        await app.claim(queue="q", limit=2)
        assert (await app.status())["q"].retries_running == 1

    play(backend, tmp_path, scene)


def test_what_is_left_of_each_limit_is_told(backend: str, tmp_path: Path) -> None:
    """Slots, rates and budgets of queue, task and downstream: what there is, what is left after some starts, and what flows in."""

    async def scene(stage: Stage) -> None:
        app = stage.app
        app.queues(
            Queue(
                "q",
                claim=Separate(3),
                concurrency=10,
                rate=Rate(per_s=1, burst=50),
                budget=RetryBudget(per_minute=6, burst=5),
                retry=SOON,
            )
        )
        app.downstreams(Downstream("bank", breaker=None, budget=RetryBudget(ratio=0.5, burst=4), rate=Rate(per_minute=60, burst=30)))
        go_on = asyncio.Event()

        @app.task(queue="q", depends_on="bank", rate=Rate(per_s=2, burst=40))
        async def pay(number: int) -> None:
            if number < 2:
                await go_on.wait()
            raise ConnectionError("down")

        await app.enqueue_many([pay.job(number) for number in range(4)])
        async with stage.worker(poll=0.1):
            await asyncio.sleep(0.5)
            at_once = left((await app.status()).limits)
            await asyncio.sleep(11)  # a report comes every ten seconds
            seen = await app.status()
            go_on.set()
        assert at_once["slots", "queue", "q", "retry"] == 3, "a worker tells its limits with its first report"
        limits = {(one.kind, one.owner, one.name, one.lane): one for one in seen.limits}
        slots = limits["slots", "queue", "q", None]
        assert (slots.most, slots.left, slots.per_s) == (10, 8, None)
        assert limits["slots", "queue", "q", "retry"].most == 3
        budget = limits["budget", "queue", "q", "retry"]
        assert (budget.most, budget.per_s) == (5, pytest.approx(0.1))
        assert budget.left == pytest.approx(5 - 4 + 11 * 0.1, abs=0.2), "the downstream's budget allowed four retries"
        assert not budget.is_spent
        rate = limits["rate", "queue", "q", None]
        assert (rate.most, rate.per_s, rate.queue) == (50, 1, "q")
        task_rate = limits["rate", "task", "pay", None]
        assert (task_rate.most, task_rate.queue) == (40, None)
        spent = limits["budget", "downstream", "bank", "retry"]
        assert (spent.most, spent.left, spent.per_s, spent.is_spent) == (4, 0, 0, True)
        assert limits["rate", "downstream", "bank", None].left <= 30

    play(backend, tmp_path, scene)


def test_the_limits_of_one_job_are_those_it_is_under(backend: str, tmp_path: Path) -> None:
    """Its own key, its own tenant, its own lane; limits of others are not told of it."""

    async def scene(stage: Stage) -> None:
        app = stage.app
        app.queues(Queue("q", budget=RetryBudget(per_minute=1, burst=2, each_tenant=True), retry=SOON), Queue("other", concurrency=1))
        go_on = asyncio.Event()

        @app.task(queue="q")
        async def work(*, fail: bool = False) -> None:
            if fail:
                raise ConnectionError("down")
            await go_on.wait()

        failing = await work.options(fair_key="anna/1").enqueue(fail=True)
        held = work.options(fair_key="bert", concurrency_key="k")
        await held.enqueue()
        second = await held.enqueue()
        async with stage.worker(poll=0.1):
            await asyncio.sleep(25)
            of_failing = left(await limits_of(app.store, await app.get(failing.id)))
            of_second = left(await limits_of(app.store, await app.get(second.id)))
            status = await app.status()
            go_on.set()
        assert list(of_failing) == [("budget", "tenant", "anna/1", "retry")]
        assert of_failing["budget", "tenant", "anna/1", "retry"] < 1
        assert of_second == {("slots", "key", "k", None): 0}, "a fresh job draws on no budget"
        told = left(status.limits)
        assert told["slots", "queue", "other", None] == 1
        assert told["budget", "tenant", "anna/1", "retry"] < 1, "of all tenants' budgets the emptiest is told"

    play(backend, tmp_path, scene)


async def test_breakers_are_part_of_the_status(app: Mulligan) -> None:
    """Open ones with who opened them and why."""
    await app.open_breaker("bank", reason="maintenance", by="anna")
    [breaker] = (await app.status()).breakers
    assert (breaker.name, breaker.state, breaker.manual, breaker.by, breaker.reason) == ("bank", "open", True, "anna", "maintenance")
    await app.close_breaker("bank")
    [breaker] = (await app.status()).breakers
    assert breaker.state == "closed"


def test_the_metrics_of_a_process_have_the_same_numbers(backend: str, tmp_path: Path) -> None:
    """Starts, waits, outcomes by attempt, tokens and breakers, beside the counters."""

    async def scene(stage: Stage) -> None:
        app = stage.app
        app.queues(Queue("q", budget=RetryBudget(per_s=1, burst=9), retry=SOON))
        runs: list[int] = []

        @app.task(queue="q", depends_on="bank")
        async def pay() -> None:
            runs.append(1)
            if len(runs) < 3:
                raise ConnectionError("down")

        await pay.enqueue()
        async with stage.worker() as worker:
            await worker.drain()
        seen = app.metrics.snapshot()
        assert seen["flow"]["q"]["by_attempt"]["3"] == {"succeeded": 1, "failed": 0, "success_rate": 1.0}
        assert (seen["flow"]["q"]["fresh_starts"], seen["flow"]["q"]["retry_starts"]) == (1, 2)
        assert seen["levels"]["budget:queue:q"] == pytest.approx(8, abs=0.5)
        assert seen["breakers"] == {"bank": "closed"}
        [started] = [event for event in app.events.recent(kind="PROCESSING") if event.attempt == 2]
        assert started.detail["waited_s"] == pytest.approx(0, abs=0.2)

    play(backend, tmp_path, scene)


async def test_manual_claims_are_counted_too(app: Mulligan) -> None:
    """A claim by hand is a start, and its completion or failure an end."""
    app.declare("work", queue="q", retry=RetryPolicy(max_retries=3, backoff=Constant(0.001), jitter="none"))
    await app.enqueue("work")
    await app.enqueue("work")
    one, two = await app.claim(queue="q", limit=2)
    await one.complete()
    await two.fail("no")
    figures = app.metrics.flow.totals()["q"]
    assert (figures.fresh_starts, figures.succeeded, figures.failed) == (2, {1: 1}, {1: 1})
