"""ctx.once when things go wrong: a lost lease, a store that is away, values and names that cannot be kept."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from mulligan import BadSetting, Context, Fail, IllegalMove, LeaseLost, StoreError, StoreRejected
from mulligan.core.receipt import RECEIPT_BYTES_MAX, RECEIPTS_MAX
from tests.builders import grip, release
from tests.virtual import Stage, play
from tests.worker.once import SlowReceipts, Till, drained, faulty, names

Ending = Callable[[], Awaitable[str]]


async def returns() -> str:
    return "as if nothing had happened"


async def raises() -> str:
    raise ValueError("of its own")


async def waits() -> str:
    await asyncio.sleep(3_600)
    return "never"


@pytest.mark.parametrize("ending", [None, returns, raises, waits])
def test_a_stale_run_gets_no_receipt_and_is_stopped(backend: str, tmp_path: Path, ending: Ending | None) -> None:
    """Its write is refused with LeaseLost, told as LEASE_LOST once; whatever the handler makes of that, it is no failure of the job."""

    async def scene(stage: Stage) -> None:
        caught: list[BaseException] = []

        @stage.app.task
        async def order(ctx: Context) -> str:
            async def charge_too_late() -> int:
                [verdict] = await stage.app.store.settle([release(ctx.job, delay_s=3_000)])  # another has taken it over
                assert verdict.applied
                return 42

            try:
                await ctx.once("charge", charge_too_late)
            except LeaseLost as error:
                caught.append(error)
                assert ctx.cancelled
                if ending is None:
                    raise
                return await ending()
            return "with a receipt"

        handle = await order.enqueue()
        async with stage.worker(lease=60) as worker:
            async with asyncio.timeout(60):
                while not caught:
                    await asyncio.sleep(0.1)
            await asyncio.sleep(1)
            assert worker.executor.busy == worker.executor.running == 0
            [told] = [event for event in stage.app.events.recent(100) if event.kind == "LEASE_LOST"]
            assert (told.job_id, told.fence, "charge" in told.detail["reason"]) == (handle.id, 1, True)
            # The worker is none the worse for it.
            more = await stage.app.enqueue("order2")
            assert await more.result(timeout=10) == 5
        job = await handle.job()
        assert (job.status, job.fence, job.failures, job.releases, job.last_error) == ("pending", 1, 0, 1, None)
        assert await names(stage, handle) == []
        assert "another may be running it" in str(caught[0])

    async def with_another_task(stage: Stage) -> None:
        @stage.app.task
        async def order2() -> int:
            return 5

        await scene(stage)

    play(backend, tmp_path, with_another_task)


def test_a_stale_step_in_a_task_of_the_handler_stops_the_handler(backend: str, tmp_path: Path) -> None:
    """A step may run beside others; if its receipt is refused, the whole run ends."""

    async def scene(stage: Stage) -> None:
        ends: list[str] = []

        @stage.app.task
        async def order(ctx: Context) -> None:
            async def charge_too_late() -> None:
                await stage.app.store.settle([release(ctx.job, delay_s=3_000)])

            try:
                await asyncio.gather(ctx.once("charge", charge_too_late), asyncio.sleep(3_600), return_exceptions=True)
            except asyncio.CancelledError:
                ends.append("stopped")
                raise

        handle = await order.enqueue()
        async with stage.worker(lease=60) as worker:
            async with asyncio.timeout(60):
                while not ends:
                    await asyncio.sleep(0.1)
            await asyncio.sleep(0.1)
            assert worker.executor.busy == 0
        assert (await handle.job()).failures == 0

    play(backend, tmp_path, scene)


def test_a_store_that_is_away_is_waited_for(backend: str, tmp_path: Path) -> None:
    """Reading and writing are repeated, and so is a write whose reply was lost; the step is not."""

    async def scene(stage: Stage) -> None:
        till, store = Till(), faulty(stage)

        @stage.app.task
        async def order(ctx: Context) -> Any:
            first = await ctx.once("charge", till.charge, 42)
            if ctx.attempt == 1:
                store.fail("receipts", times=3)
                raise ConnectionError
            return [first, await ctx.once("mail", till.charge, 0)]

        store.fail("put_receipt", times=3)
        store.fail("put_receipt", when="after")
        job = await drained(stage, await order.enqueue())
        assert (job.status, job.attempts, till.charged) == ("done", 2, [42, 0]), job.last_error
        assert job.result[0] == {"amount": 42, "currency": "EUR", "number": 1}
        assert (store.calls["put_receipt"], store.calls["receipts"]) == (4 + 1 + 1, 3 + 1)
        kinds = [event.kind for event in stage.app.events.recent(200)]
        assert "STORE_DEGRADED" in kinds and "STORE_RECOVERED" in kinds

    play(backend, tmp_path, scene)


def test_a_refusal_of_the_store_is_the_handlers_to_hear(backend: str, tmp_path: Path) -> None:
    """An error that a repeat cannot mend gives up, since a retry would only repeat the step; asked for again it only writes its receipt."""

    async def scene(stage: Stage) -> None:
        till, store = Till(), faulty(stage)

        @stage.app.task
        async def order(ctx: Context) -> Any:
            with pytest.raises(Fail, match="no room"):
                await ctx.once("charge", till.charge, 42)
            return await ctx.once("charge", till.charge, 42)

        store.fail("put_receipt", error=StoreError("no room"))
        job = await drained(stage, await order.enqueue())
        assert (job.status, job.result, till.charged) == ("done", {"amount": 42, "currency": "EUR", "number": 1}, [42])

    play(backend, tmp_path, scene)


@pytest.mark.parametrize("value", [object(), {1: 2}, float("nan"), "x" * 65_535, {1, 2}], ids=["object", "keys", "nan", "large", "set"])
def test_a_value_that_cannot_be_stored_fails_the_job(backend: str, tmp_path: Path, value: Any) -> None:
    """The step has been done, so that a retry would only repeat it: this is for a person to see."""

    async def scene(stage: Stage) -> None:
        calls: list[int] = []

        async def charge() -> Any:
            calls.append(1)
            return value

        @stage.app.task
        async def order(ctx: Context) -> None:
            await ctx.once("charge", charge)

        handle = await order.enqueue()
        job = await drained(stage, handle)
        assert (job.status, job.attempts, len(calls)) == ("failed", 1, 1)
        assert job.last_error is not None
        assert (job.last_error.code, "'charge'" in job.last_error.message) == ("bad_receipt", True)
        assert await names(stage, handle) == []

    play(backend, tmp_path, scene)


def test_a_damaged_receipt_fails_the_job_and_repeats_nothing(backend: str, tmp_path: Path) -> None:
    """Its step was done, and nobody knows any more with which result."""

    async def scene(stage: Stage) -> None:
        till = Till()

        @stage.app.task
        async def order(ctx: Context) -> None:
            await ctx.once("charge", till.charge, 42)

        handle = await order.enqueue()
        [lease] = await stage.app.claim()
        await stage.app.store.put_receipt(grip(lease.job), "charge", '{"amount": 4')
        await lease.release()
        job = await drained(stage, handle)
        assert (job.status, till.charged) == ("failed", [])
        assert job.last_error is not None
        assert (job.last_error.code, "cannot be decoded" in job.last_error.message) == ("bad_receipt", True)

    play(backend, tmp_path, scene)


def test_bad_steps_are_refused_before_they_are_done(local_backend: str, tmp_path: Path) -> None:
    """A bad name, one step too many, and a step inside itself: each is told by an error, and nothing is called."""

    async def scene(stage: Stage) -> None:
        till = Till()

        @stage.app.task
        async def order(ctx: Context) -> None:
            with pytest.raises(BadSetting, match="step"):
                await ctx.once("a step", till.charge, 1)
            async with ctx.once("outer"):
                with pytest.raises(IllegalMove, match="outer"):
                    await ctx.once("outer", till.charge, 2)
            for number in range(RECEIPTS_MAX - 1):
                await ctx.once(f"step-{number}", len, "")
            with pytest.raises(StoreError, match="100 receipts"):
                await ctx.once("too-many", till.charge, 3)
            assert await ctx.once("step-7", till.charge, 4) == 0

        job = await drained(stage, await order.enqueue())
        assert (job.status, till.charged) == ("done", []), job.last_error

    play(local_backend, tmp_path, scene)


@pytest.mark.parametrize("runs", [1, 2])
def test_of_steps_beside_each_other_no_more_are_done_than_have_room(local_backend: str, tmp_path: Path, runs: int) -> None:
    """Those under way count as well, so that no effect happens whose receipt is refused afterwards; also where receipts are read first."""

    async def scene(stage: Stage) -> None:
        till, refused = Till(), []

        @stage.app.task
        async def order(ctx: Context) -> int:
            if ctx.attempt < runs:
                raise ConnectionError
            steps = (ctx.once(f"step-{number}", till.charge, number) for number in range(RECEIPTS_MAX + 30))
            for answer in await asyncio.gather(*steps, return_exceptions=True):
                if isinstance(answer, BaseException):
                    refused.append(answer)
            return len(refused)

        handle = await order.enqueue()
        job = await drained(stage, handle)
        assert (job.status, job.result, len(till.charged)) == ("done", 30, RECEIPTS_MAX), job.last_error
        assert {type(error) for error in refused} == {StoreRejected}
        assert len(await names(stage, handle)) == RECEIPTS_MAX

    play(local_backend, tmp_path, scene)


def test_a_step_whose_receipt_might_not_fit_is_refused_before_it_is_done(backend: str, tmp_path: Path) -> None:
    """All receipts of a job have one bound together, on every store; a rerun counts those of the runs before it."""

    async def scene(stage: Stage) -> None:
        calls: list[int] = []

        def large() -> str:
            calls.append(1)
            return "x" * (RECEIPT_BYTES_MAX - 2)

        @stage.app.task
        async def order(ctx: Context) -> str:
            if ctx.attempt == 1:
                for number in range(44):
                    await ctx.once(f"step-{number}", large)
                raise ConnectionError
            await ctx.once("step-44", large)
            with pytest.raises(StoreRejected, match="3,000,000"):
                await ctx.once("step-45", large)
            return (await ctx.once("step-7", large))[:3]

        job = await drained(stage, await order.enqueue())
        assert (job.status, job.result, len(calls)) == ("done", "xxx", 45), job.last_error

    play(backend, tmp_path, scene)


def test_a_failed_step_may_be_tried_again_in_the_same_run(local_backend: str, tmp_path: Path) -> None:
    """It leaves nothing behind."""

    async def scene(stage: Stage) -> None:
        tries: list[int] = []

        def charge() -> int:
            tries.append(1)
            if len(tries) == 1:
                raise ConnectionError
            return len(tries)

        @stage.app.task
        async def order(ctx: Context) -> int:
            with pytest.raises(ConnectionError):
                await ctx.once("charge", charge)
            return await ctx.once("charge", charge)

        assert (await drained(stage, await order.enqueue())).result == 2

    play(local_backend, tmp_path, scene)


@pytest.mark.parametrize(("seconds", "charges"), [(1.0, 1), (10.0, 2)])
def test_a_run_that_is_stopped_while_its_receipt_is_written_gets_it_still(
    local_backend: str, tmp_path: Path, seconds: float, charges: int
) -> None:
    """The effect has happened, so the write has a moment more than the run; but no longer than that."""

    async def scene(stage: Stage) -> None:
        till = Till()
        stage.app.store = store = SlowReceipts(stage.app.store)  # type: ignore[assignment]
        store.seconds = seconds

        @stage.app.task(timeout=0.5)
        async def order(ctx: Context) -> Any:
            if ctx.attempt > 1:
                store.seconds = 0.1
            return await ctx.once("charge", till.charge, 42)

        job = await drained(stage, await order.enqueue())
        assert (job.status, job.attempts, till.charged) == ("done", 2, [42] * charges)
        assert [record.outcome for record in job.history] == ["timeout"]

    play(local_backend, tmp_path, scene)
