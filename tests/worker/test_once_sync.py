"""ctx.sync.once: the steps of sync handlers, which run in threads of their own, on a real loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mulligan import Constant, Context, IllegalMove, LeaseLost, Mulligan, RetryPolicy, StoreUnavailable, UsageError
from mulligan.worker.threads import JobInterrupted
from tests.builders import release
from tests.conftest import url_of
from tests.faults import FaultyStore

AT_ONCE = RetryPolicy(max_retries=3, backoff=Constant(delay=0.01), jitter="none")


@pytest.fixture
async def app(backend: str, tmp_path: Path) -> AsyncIterator[Mulligan]:
    """An app whose retries come at once."""
    async with Mulligan(url_of(backend, tmp_path), retry=AT_ONCE) as app:
        yield app


async def drain(app: Mulligan) -> None:
    async with app.worker(poll=0.05) as worker:
        await worker.drain()


async def test_a_rerun_skips_a_finished_step(app: Mulligan) -> None:
    """Both forms: a call, and a block that sees whether it is done; the step runs in the handler's thread."""
    charged: list[Any] = []
    threads: set[int] = set()

    def charge(amount: int, *, currency: str) -> dict[str, Any]:
        threads.add(threading.get_ident())
        charged.append(amount)
        return {"amount": amount, "currency": currency}

    @app.task
    def order(ctx: Context) -> Any:
        receipt = ctx.sync.once("charge", charge, 42, currency="EUR")
        with ctx.sync.once("mail") as step:
            if not step.done:
                charged.append("mail")
                step.value = ctx.attempt
                if ctx.attempt == 1:
                    raise ConnectionError
        if ctx.attempt == 2:
            raise ConnectionError
        return [receipt, step.done, step.value]

    handle = await order.enqueue()
    await drain(app)
    job = await handle.job()
    assert (job.status, job.result) == ("done", [{"amount": 42, "currency": "EUR"}, True, 2]), job.last_error
    assert charged == [42, "mail", "mail"]
    assert threading.get_ident() not in threads
    [own] = await app.store.receipts([handle.id])
    assert [(receipt.name, receipt.fence) for receipt in own] == [("charge", 1), ("mail", 2)]


async def test_a_stale_run_gets_no_receipt(app: Mulligan) -> None:
    """The step raises in the thread; the outcome of the run is not written, and is no failure."""
    loop = asyncio.get_running_loop()
    caught: list[BaseException] = []
    over = asyncio.Event()

    @app.task
    def order(ctx: Context) -> str:
        def charge_too_late() -> None:
            asyncio.run_coroutine_threadsafe(app.store.settle([release(ctx.job, delay_s=3_000)]), loop).result()

        try:
            ctx.sync.once("charge", charge_too_late)
        except BaseException as error:
            caught.append(error)
            loop.call_soon_threadsafe(over.set)
            raise
        return "with a receipt"

    handle = await order.enqueue()
    async with app.worker():
        await asyncio.wait_for(over.wait(), 30)
    [error] = caught
    assert isinstance(error, LeaseLost | JobInterrupted)  # whichever reaches the thread first
    job = await handle.job()
    assert (job.status, job.failures, job.releases, job.fence) == ("pending", 0, 1, 1)
    assert await app.store.receipts([handle.id]) == [[]]
    assert [event.kind for event in app.events.recent(100)].count("LEASE_LOST") == 1


async def test_a_thread_that_waits_for_the_store_is_let_go_when_its_run_should_stop(app: Mulligan) -> None:
    """It does not sit out an outage beyond its time-out, and is not left behind."""
    app.store = store = FaultyStore(app.store)  # type: ignore[assignment]
    calls: list[int] = []

    @app.task(timeout=0.3)
    def order(ctx: Context) -> int:
        if ctx.attempt == 1:
            store.fail("put_receipt", times=1_000, error=StoreUnavailable("away"))
        else:
            store._plan.clear()
        return ctx.sync.once("charge", lambda: calls.append(1) or len(calls))

    handle = await order.enqueue()
    await drain(app)
    job = await handle.job()
    assert (job.status, job.result) == ("done", 2), job.last_error  # the effect had no receipt, so it came twice
    assert job.history[0].outcome == "timeout"
    assert "did not stop" not in job.history[0].why + (job.history[0].error.message if job.history[0].error else "")


async def test_misuse_is_told(app: Mulligan) -> None:
    """A function that must be awaited, and an async handler that would block its own loop."""

    async def charge() -> int:
        return 1

    @app.task
    def order(ctx: Context) -> str:
        with pytest.raises(UsageError, match="async"):
            ctx.sync.once("charge", charge)
        return "told"

    @app.task
    async def async_order(ctx: Context) -> str:
        with pytest.raises(IllegalMove, match="await ctx.once"):
            ctx.sync.once("charge", len, "")
        return "told"

    handles = [await order.enqueue(), await async_order.enqueue()]
    await drain(app)
    assert [(await handle.job()).result for handle in handles] == ["told", "told"]


def test_a_plain_call_just_calls() -> None:
    """Without a queue there is nothing to remember."""
    app = Mulligan("memory://")

    @app.task
    def order(ctx: Context) -> int:
        with ctx.sync.once("charge") as step:
            assert not step.done
            step.value = object()
        return ctx.sync.once("charge", len, "abc")

    assert order() == 3
