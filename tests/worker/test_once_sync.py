"""ctx.sync.once: the steps of sync handlers, which run in threads of their own, on a real loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from mulligan import Constant, Context, IllegalMove, LeaseLost, Mulligan, RetryPolicy, StoreUnavailable, UsageError
from mulligan.core.contract import Store
from mulligan.worker.threads import JobInterrupted
from tests.builders import release
from tests.conftest import url_of
from tests.faults import FaultyStore
from tests.worker.once import SlowReceipts

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


async def test_the_outcome_waits_for_the_receipt_of_a_step_that_is_done(app: Mulligan) -> None:
    """A run that times out while its receipt is being written is settled after that, so that the rerun finds it."""
    app.store = store = SlowReceipts(app.store)  # type: ignore[assignment]
    store.seconds = 1.7  # more than a thread that waits looks up, less than a last write gets
    calls: list[int] = []

    @app.task(timeout=0.2)
    def order(ctx: Context) -> int:
        return ctx.sync.once("charge", lambda: calls.append(1) or len(calls))

    handle = await order.enqueue()
    await drain(app)
    job = await handle.job()
    assert (job.status, job.result, calls) == ("done", 1, [1]), job.last_error
    assert [record.outcome for record in job.history] == ["timeout"]
    assert "LEASE_LOST" not in [event.kind for event in app.events.recent(100)]


@pytest.mark.parametrize("away", [False, True])
async def test_a_step_that_ends_after_its_run_was_told_to_stop_has_a_moment_for_its_receipt(app: Mulligan, away: bool) -> None:
    """Its handler caught the interruption and finished the step. A store that is away does not hold it for longer than that."""
    app.store = store = SlowReceipts(app.store)  # type: ignore[assignment]
    calls: list[int] = []
    never = threading.Event()

    @app.task(timeout=0.2)
    def order(ctx: Context) -> Any:
        with ctx.sync.once("charge") as step:
            if not step.done:
                step.value = ctx.attempt
                calls.append(1)
                if ctx.attempt == 2:
                    store._plan.clear()
                    return "charged again"
                try:
                    while not never.wait(0.01):
                        pass
                except JobInterrupted:
                    store.seconds = 0.1 if away else 1.2
        store.seconds = 0.0
        return step.value

    if away:
        store.fail("put_receipt", times=1_000)
    handle = await order.enqueue()
    await drain(app)
    job = await handle.job()
    assert (job.status, job.result, len(calls)) == (("done", "charged again", 2) if away else ("done", 1, 1)), job.last_error
    assert [record.outcome for record in job.history] == ["timeout"]
    assert job.history[0].error is not None and "did not stop" not in job.history[0].error.message


async def test_a_store_that_does_not_let_go_does_not_hold_a_thread(app: Mulligan) -> None:
    """A call that is deaf to its cancellation is left behind, so that the thread is not."""
    app.store = store = DeafReceipts(app.store)  # type: ignore[assignment]

    @app.task(timeout=0.2)
    def order(ctx: Context) -> str:
        if ctx.attempt == 1:
            raise ConnectionError
        if ctx.attempt == 3:
            asyncio.run_coroutine_threadsafe(store.answer(), loop).result()
        return ctx.sync.once("charge", lambda: f"in attempt {ctx.attempt}")

    loop = asyncio.get_running_loop()
    handle = await order.enqueue()
    await drain(app)
    job = await handle.job()
    assert (job.status, job.result) == ("done", "in attempt 3"), job.last_error
    assert job.history[1].error is not None and job.history[1].error.message == "timed out after 0.2 s"


class DeafReceipts(FaultyStore):
    """A store that reads receipts when it is told to, and not before, whatever becomes of who asked."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._told = asyncio.Event()

    async def answer(self) -> None:
        self._told.set()

    async def receipts(self, ids: list[str]) -> Any:
        while not self._told.is_set():
            with suppress(asyncio.CancelledError):
                await self._told.wait()
        return await self._inner.receipts(ids)


async def test_middleware_that_gives_up_does_not_leave_a_thread_behind(app: Mulligan, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody told the run to stop, only its thread: that waits for the receipt a moment more, and then no longer."""
    app.store = store = FaultyStore(app.store)  # type: ignore[assignment]
    ends: list[BaseException] = []

    @app.use
    async def impatient(ctx: Context, call_next: Callable[[], Awaitable[Any]]) -> Any:
        try:
            async with asyncio.timeout(0.2):
                return await call_next()
        except TimeoutError:
            return "gave up"

    @app.task
    def order(ctx: Context) -> None:
        try:
            ctx.sync.once("charge", len, "")
        except BaseException as error:
            ends.append(error)
            raise

    store.fail("put_receipt", times=1_000)
    handle = await order.enqueue()
    await drain(app)
    assert (await handle.job()).result == "gave up"
    assert [type(error) for error in ends] == [JobInterrupted]
    assert "does not stop" not in caplog.text
    assert not [task for task in asyncio.all_tasks() if "SyncStep" in repr(task.get_coro())]  # nobody writes on for a run that is over


async def test_misuse_is_told(app: Mulligan) -> None:
    """A function that must be awaited, an async handler that would block its own loop, and a sync one that makes a loop of its own."""
    called: list[int] = []

    async def charge() -> int:
        called.append(1)
        return 1

    @app.task
    def looping_order(ctx: Context) -> str:
        with pytest.raises(IllegalMove, match=r"ctx\.sync\.once"):
            asyncio.run(ctx.once("charge", charge))
        return ctx.sync.once("charge", lambda: "told")

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

    handles = [await order.enqueue(), await async_order.enqueue(), await looping_order.enqueue()]
    await drain(app)
    assert [(await handle.job()).result for handle in handles] == ["told", "told", "told"]
    assert called == []


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
