"""The app that all processes of these tests share: its tasks note each run in the ledger."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from mulligan import Constant, Context, Event, Fail, Mulligan, RetryPolicy
from tests.processes.ledger import Ledger

NOTED = {"LEASE_LOST", "CRASHED", "RELEASED", "COMPLETED", "FAILED", "STORE_DEGRADED", "STORE_RECOVERED"}
# Crashes are followed by a backoff from the second one on; here it is short, so that a test need not wait.
POLICY = RetryPolicy(max_retries=10, backoff=Constant(delay=0.01), jitter="none")


def make_app(url: str, ledger: Ledger) -> Mulligan:
    """The app on this store; its events that matter here go to the ledger, too."""
    app = Mulligan(url, retry=POLICY)

    def hear(event: Event) -> None:
        if event.kind in NOTED:
            ledger.note(event.kind, event.job_id or "-", event.fence, event.at_us)

    app.events.subscribe(hear)

    @app.task
    async def quick(ctx: Context, number: int) -> int:
        ledger.note("RUN", ctx.job.id, ctx.fence)
        await asyncio.sleep(0)
        return number

    @app.task
    async def slow(ctx: Context, seconds: float) -> int:
        ledger.note("RUN", ctx.job.id, ctx.fence)
        await asyncio.sleep(seconds)
        ledger.note("END", ctx.job.id, ctx.fence)
        return os.getpid()

    @app.task
    async def gated(ctx: Context, gate: str) -> int:
        ledger.note("RUN", ctx.job.id, ctx.fence)
        while not Path(gate).exists():  # another process makes the file
            await asyncio.sleep(0.005)
        ledger.note("END", ctx.job.id, ctx.fence)
        return os.getpid()

    @app.task
    async def stepped(ctx: Context, inside: str, behind: str) -> int:
        async def pay() -> int:
            ledger.note("PAID", ctx.job.id, ctx.fence, more=ctx.idempotency_key)
            while not Path(inside).exists():
                await asyncio.sleep(0.005)
            return os.getpid()

        payer = await ctx.once("pay", pay)
        ledger.note("RUN", ctx.job.id, ctx.fence)
        while not Path(behind).exists():
            await asyncio.sleep(0.005)
        return payer

    @app.task
    async def stamped(ctx: Context, sent_ns: int) -> int:
        ledger.note("RUN", ctx.job.id, ctx.fence)
        return time.monotonic_ns() - sent_ns  # this clock is the same for all processes of a machine

    @app.task
    async def cpu_time() -> float:
        return time.process_time()

    @app.task
    async def hopeless() -> None:
        raise Fail("never")

    app.state.quick, app.state.slow, app.state.gated, app.state.stamped, app.state.hopeless = quick, slow, gated, stamped, hopeless
    return app
