"""Calls that must pass mypy --strict, with the types they must have. Checked by test_types.py, never run."""

from __future__ import annotations

from collections.abc import Coroutine
from datetime import datetime
from typing import Any, assert_type

from mulligan import (
    Breaker,
    Context,
    Downstream,
    Exponential,
    Handle,
    Job,
    Lease,
    Mulligan,
    NewJob,
    Queue,
    Rate,
    RetryBudget,
    RetryPolicy,
    ScheduleHandle,
    Separate,
    Task,
    Weighted,
    Worker,
)
from mulligan.steering import BreakerStatus, ChangedQueue
from mulligan.sync import SyncHandle

app = Mulligan("memory://", retry=RetryPolicy(max_retries=5, backoff=Exponential(base=1, factor=2, cap=900), jitter="full"))


@app.task
async def async_plain(invoice: int, currency: str = "EUR") -> str:
    return f"{invoice} {currency}"


@app.task
async def async_context(ctx: Context, invoice: int, *, currency: str) -> list[int]:
    assert_type(ctx.job, Job)
    return [invoice]


@app.task
def sync_plain(name: str) -> int:
    return len(name)


@app.task
def sync_context(ctx: Context, name: str) -> dict[str, int]:
    return {name: ctx.attempt}


@app.task(queue="billing", timeout=30, retry=RetryPolicy(give_up_on=(ValueError,)), priority=1, tags=["a"], name="other")
async def async_called(invoice: int) -> bool:
    return invoice > 0


@app.task(timeout=None)
async def async_context_called(ctx: Context, invoice: int) -> float:
    return invoice / 2


@app.task(depends_on="bank", rate=Rate(per_minute=100), budget=RetryBudget(ratio=0.2, min_per_s=10))
async def limited(invoice: int) -> str:
    return str(invoice)


@app.task()
def sync_called(*names: str) -> None: ...


@app.task(queue="q")
def sync_context_called(ctx: Context, /, **options: int) -> tuple[int, ...]:
    return tuple(options.values())


@app.task
async def no_arguments() -> None: ...


@app.task
async def only_context(ctx: Context) -> int:
    return ctx.fence


async def enqueueing() -> None:
    """Each form keeps the function's own arguments, without the context, and the type of its result."""
    assert_type(await async_plain.enqueue(1), Handle[str])
    assert_type(await async_plain.enqueue(1, "USD"), Handle[str])
    assert_type(await async_plain.enqueue(invoice=1, currency="USD"), Handle[str])
    assert_type(await async_context.enqueue(1, currency="EUR"), Handle[list[int]])
    assert_type(await sync_plain.enqueue("x"), Handle[int])
    assert_type(await sync_context.enqueue("x"), Handle[dict[str, int]])
    assert_type(await async_called.enqueue(1), Handle[bool])
    assert_type(await async_context_called.enqueue(1), Handle[float])
    assert_type(await sync_called.enqueue("a", "b"), Handle[None])
    assert_type(await sync_context_called.enqueue(a=1, b=2), Handle[tuple[int, ...]])
    assert_type(await no_arguments.enqueue(), Handle[None])
    assert_type(await only_context.enqueue(), Handle[int])


async def options_and_jobs() -> None:
    """Options keep the signature; job makes what enqueue_many takes."""
    later = async_plain.options(delay=60, priority=2, unique_key="invoice:42", max_age=3600)
    assert_type(await later.enqueue(1, "USD"), Handle[str])
    assert_type(await sync_context.options(tags=["a"]).options(timeout=None).enqueue("x"), Handle[dict[str, int]])
    assert_type(await limited.options(fair_key="tenant", concurrency_key="invoice:42").enqueue(1), Handle[str])
    assert_type(later.job(1), NewJob)
    assert_type(async_context.job(1, currency="EUR"), NewJob)
    assert_type(await app.enqueue_many([async_plain.job(1), sync_plain.job("x")]), list[Handle[Any]])


async def results() -> None:
    """A result has the type of the function's."""
    handle = await async_plain.enqueue(1)
    assert_type(await handle.result(timeout=10), str)
    assert_type(await handle.job(), Job)
    assert_type(await (await async_context.enqueue(1, currency="EUR")).result(), list[int])
    assert_type(await (await sync_plain.enqueue("x")).result(), int)
    assert_type(handle.id, str)
    assert_type(handle.created, bool)


def blocking() -> None:
    """The same for code without a loop."""
    assert_type(async_plain.sync.enqueue(1, "USD"), SyncHandle[str])
    assert_type(async_plain.sync.enqueue(1).result(timeout=5), str)
    assert_type(sync_context.sync.enqueue("x"), SyncHandle[dict[str, int]])
    assert_type(async_context.options(delay=5).sync.enqueue(1, currency="EUR").result(), list[int])
    assert_type(app.sync.get("x"), Job)


async def pay(amount: int, *, currency: str = "EUR") -> str:
    return f"{amount} {currency}"


def count(name: str) -> int:
    return len(name)


async def steps(ctx: Context, lease: Lease) -> None:
    """A step keeps the signature of its function, and has the type of its result, awaited or not."""
    assert_type(await ctx.once("pay", pay, 42, currency="USD"), str)
    assert_type(await ctx.once("count", count, name="x"), int)
    assert_type(await lease.once("pay", pay, 42), str)
    assert_type(ctx.sync.once("count", count, "x"), int)
    async with ctx.once("pay") as step:
        assert_type(step.done, bool)
        step.value = {"paid": True}
    with ctx.sync.once("pay") as sync_step:
        assert_type(sync_step.value, Any)


async def inline() -> None:
    """A plain call gives what the function gives."""
    await assert_type(async_plain(1), Coroutine[Any, Any, str])
    assert_type(await async_context(1, currency="EUR"), list[int])
    assert_type(sync_plain("x"), int)
    assert_type(sync_context("x"), dict[str, int])
    assert_type(await async_called(1), bool)
    assert_type(sync_called("a"), None)


async def by_name() -> None:
    """By name there is nothing to check, but interval= makes a schedule."""
    assert_type(await app.enqueue("other", args=[1], kwargs={}, max_retries=5), Handle[Any])
    assert_type(await app.enqueue("other", args=[1], interval=300, name="every"), ScheduleHandle)
    assert_type((await app.enqueue("other", interval=5)).next_runs(3), list[datetime])


async def operating() -> None:
    """What operators and manual claimers get."""
    app.queues(Queue("billing", claim=Weighted(retry_share=0.2)))
    assert_type([job async for job in app.jobs(status="failed", queue="billing")], list[Job])
    [lease] = await app.claim(queue="billing", limit=1)
    assert_type(lease, Lease)
    assert_type(await lease.fail("x", code=404, retry=False), bool)
    assert_type(await app.requeue(lease.id), bool)
    async with app.worker(concurrency=100) as worker:
        assert_type(worker, Worker)
        assert_type(await worker.drain(), None)


async def steering() -> None:
    """Limits of the whole fleet, in code and while it runs; texts will do where they are typed by people."""
    app.queues(Queue("billing", claim=Separate(5), concurrency=20, rate=Rate(per_s=5), budget=RetryBudget(per_minute=100, over="fail")))
    app.downstreams(Downstream("bank", breaker=Breaker(failure_rate=0.3)), Downstream("shop", breaker=None))
    app.declare("other", depends_on="bank")
    assert_type(await app.configure("billing", claim="weighted(0.3)", rate="100/m", budget=None, by="ann"), dict[str, Any])
    assert_type(await app.configure("billing", claim=Weighted(0.3), rate=Rate(per_s=1), concurrency=None), dict[str, Any])
    assert_type(await app.configured(), list[ChangedQueue])
    assert_type(await app.open_breaker("bank", reason="x", by="ann"), BreakerStatus)
    assert_type(await app.breakers(), list[BreakerStatus])
    assert_type((await app.close_breaker("bank")).since, datetime | None)
    await app.reset_queue("billing", by="ann")


def steering_blocking() -> None:
    """The same for code without a loop."""
    assert_type(app.sync.configure("billing", concurrency=5), dict[str, Any])
    assert_type(app.sync.configured(), list[ChangedQueue])
    assert_type(app.sync.open_breaker("bank"), BreakerStatus)
    assert_type(app.sync.close_breaker("bank"), BreakerStatus)
    assert_type(app.sync.breakers(), list[BreakerStatus])
    app.sync.reset_queue("billing")


def typed_tasks() -> None:
    """A task's own type, for those who pass tasks around."""
    given: Task[[str], int, int] = sync_plain
    assert_type(given("x"), int)


@app.on_startup
async def connect() -> None:
    app.state.client = object()


@app.on_shutdown
def disconnect() -> None: ...


async def hooks_stay_functions() -> None:
    """A hook's decorator gives the function back."""
    assert_type(await connect(), None)
    assert_type(disconnect(), None)
