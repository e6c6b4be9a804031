"""ctx.once: a rerun skips the steps that are done, and nobody else pays for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from mulligan import Context, Fail, IllegalMove, LeaseLost, StoreUnavailable
from tests.virtual import Stage, play
from tests.worker.once import Till, drained, faulty, names


def test_a_rerun_skips_a_finished_step(backend: str, tmp_path: Path) -> None:
    """The step is called once with its arguments; later runs get what it returned. The step after it is called when its turn comes."""

    async def scene(stage: Stage) -> None:
        till, seen = Till(), []

        @stage.app.task
        async def order(ctx: Context, amount: int) -> Any:
            seen.append(await ctx.once("charge", till.charge, amount, currency="USD"))
            if ctx.attempt < 3:
                raise ConnectionError("the mail server is away")
            return await ctx.once("mail", till.charge_now, 0)

        handle = await order.enqueue(42)
        job = await drained(stage, handle)
        assert (job.status, job.attempts, job.failures) == ("done", 3, 2)
        assert till.charged == [42, 0]
        assert seen == [{"amount": 42, "currency": "USD", "number": 1}] * 3
        assert job.result == [0, 2]
        assert await names(stage, handle) == ["charge", "mail"]

    play(backend, tmp_path, scene)


def test_a_step_in_place(backend: str, tmp_path: Path) -> None:
    """The block sees whether it is done and what its value is; the value is stored when the block ends, and not if it raises."""

    async def scene(stage: Stage) -> None:
        seen: list[tuple[int, bool, Any]] = []

        @stage.app.task
        async def order(ctx: Context) -> None:
            async with ctx.once("charge") as step:
                seen.append((ctx.attempt, step.done, step.value))
                if not step.done:
                    step.value = f"paid in attempt {ctx.attempt}"
                    if ctx.attempt == 1:
                        raise ConnectionError
            assert step.value == "paid in attempt 2"
            if ctx.attempt == 2:
                raise ConnectionError
            with pytest.raises(IllegalMove, match="charge"):
                step.value = "something else"

        job = await drained(stage, await order.enqueue())
        assert job.status == "done", job.last_error
        assert seen == [(1, False, None), (2, False, None), (3, True, "paid in attempt 2")]

    play(backend, tmp_path, scene)


def test_a_run_after_a_crash_skips_what_was_done(backend: str, tmp_path: Path) -> None:
    """The first holder vanishes after the step; whoever takes the job over does not do it again."""

    async def scene(stage: Stage) -> None:
        till = Till()

        @stage.app.task
        async def order(ctx: Context) -> Any:
            return await ctx.once("charge", till.charge, 42)

        handle = await order.enqueue()
        [vanishes] = await stage.app.claim(lease=5)
        first = await vanishes.once("charge", till.charge, 42)
        async with stage.worker():
            assert await handle.result(timeout=60) == first
        job = await handle.job()
        assert (job.crashes, job.fence, till.charged) == (1, 2, [42])

    play(backend, tmp_path, scene)


def test_a_crash_between_the_effect_and_its_receipt_repeats_the_step(backend: str, tmp_path: Path) -> None:
    """As documented: these are two writes. The key that is handed to the sink is the same both times, so a sink that keeps it can tell."""

    async def scene(stage: Stage) -> None:
        keys: list[str] = []

        @stage.app.task
        async def order(ctx: Context) -> None:
            async with ctx.once("charge") as step:
                if not step.done:
                    keys.append(ctx.idempotency_key)
                    if ctx.attempt == 1:
                        raise ConnectionError("after the effect, before the receipt")

        job = await drained(stage, await order.enqueue())
        assert job.status == "done"
        assert len(keys) == 2 and len(set(keys)) == 1

    play(backend, tmp_path, scene)


def test_a_requeued_job_keeps_its_receipts(backend: str, tmp_path: Path) -> None:
    """What was charged stays charged in the next generation, although the idempotency key is another."""

    async def scene(stage: Stage) -> None:
        till, keys = Till(), []

        @stage.app.task
        async def order(ctx: Context) -> None:
            await ctx.once("charge", till.charge, 42)
            keys.append(ctx.idempotency_key)
            if ctx.job.generation == 1:
                raise Fail("the address is wrong")

        handle = await order.enqueue()
        assert (await drained(stage, handle)).status == "failed"
        assert await stage.app.requeue(handle.id)
        job = await drained(stage, handle)
        assert (job.status, job.generation, till.charged, len(set(keys))) == ("done", 2, [42], 2)

    play(backend, tmp_path, scene)


def test_it_costs_nothing_where_it_is_not_used(backend: str, tmp_path: Path) -> None:
    """No job pays for the steps of others; a first run reads nothing; a later one reads once, however many steps it has."""

    async def scene(stage: Stage) -> None:
        till, store = Till(), faulty(stage)

        @stage.app.task
        async def plain(ctx: Context) -> None:
            if ctx.attempt == 1:
                raise ConnectionError

        @stage.app.task
        async def order(ctx: Context) -> None:
            for number in range(5):
                await ctx.once(f"step-{number}", till.charge, number)
                await ctx.once(f"step-{number}", till.charge, number)
            if ctx.attempt == 1:
                assert store.calls["receipts"] == 0
                raise ConnectionError

        assert (await drained(stage, await plain.enqueue())).status == "done"
        assert (store.calls["receipts"], store.calls["put_receipt"]) == (0, 0)
        assert (await drained(stage, await order.enqueue())).status == "done"
        assert (store.calls["receipts"], store.calls["put_receipt"]) == (1, 5)
        assert till.charged == [0, 1, 2, 3, 4]

    play(backend, tmp_path, scene)


def test_middleware_may_have_steps(local_backend: str, tmp_path: Path) -> None:
    """It sees the same run, and so the same receipts."""

    async def scene(stage: Stage) -> None:
        till = Till()

        @stage.app.use
        async def announce(ctx: Context, call_next: Callable[[], Awaitable[Any]]) -> Any:
            await ctx.once("announce", till.charge, 1)
            return await call_next()

        @stage.app.task
        async def order(ctx: Context) -> Any:
            if ctx.attempt == 1:
                raise ConnectionError
            return await ctx.once("announce", till.charge, 2)

        job = await drained(stage, await order.enqueue())
        assert (job.result["amount"], till.charged) == (1, [1])

    play(local_backend, tmp_path, scene)


def test_a_plain_call_just_calls(local_backend: str, tmp_path: Path) -> None:
    """Without a queue there is nothing to remember, and nothing is stored."""

    async def scene(stage: Stage) -> None:
        till = Till()

        @stage.app.task
        async def order(ctx: Context) -> Any:
            async with ctx.once("mail") as step:
                assert not step.done
                step.value = object()
            await ctx.once("charge", till.charge, 1)
            return await ctx.once("charge", till.charge_now, 2)

        assert await order() == (2, 2)
        assert till.charged == [1, 2]

    play(local_backend, tmp_path, scene)


def test_a_lease_held_by_hand_has_steps_too(backend: str, tmp_path: Path) -> None:
    """They are skipped by the next holder; a store that is away is told at once, and a repeat only writes; a stale lease is refused."""

    async def scene(stage: Stage) -> None:
        till, store = Till(), faulty(stage)
        stage.app.declare("order")
        await stage.app.enqueue("order")
        [lease] = await stage.app.claim()
        lease._store = store  # type: ignore[assignment]
        store.fail("put_receipt")
        with pytest.raises(StoreUnavailable):
            await lease.once("charge", till.charge, 42)
        first = await lease.once("charge", till.charge, 42)
        await lease.fail("again", after=0)
        with pytest.raises(LeaseLost):
            await lease.once("mail", till.charge, 0)
        await asyncio.sleep(1)
        [again] = await stage.app.claim()
        async with again.once("charge") as step:
            assert (step.done, step.value) == (True, first)
        assert till.charged == [42, 0]

    play(backend, tmp_path, scene)
