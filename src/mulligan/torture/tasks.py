"""The app of a torture run: `mulligan worker mulligan.torture.tasks:app`. Its tasks and its store note everything in the ledger.

Supervisors, children and producers all import this module, so what any of them does is seen. Where things are is told by the environment.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mulligan.app import Mulligan
from mulligan.core.contract import Store
from mulligan.core.errors import Snooze
from mulligan.core.job import NewJob
from mulligan.policy.backoff import Constant
from mulligan.policy.retry import RetryPolicy
from mulligan.torture.ledger import Ledger
from mulligan.torture.plan import AHEAD, BACKOFF_S, CANCEL_EVERY, MAX_CRASHES, MAX_RETRIES, POLL_S, QUEUE, SHORT_MAX_S, SWEEP_S, work_of
from mulligan.torture.sink import Effect, Sink
from mulligan.torture.watching import Watched, watch_supervisor
from mulligan.worker.context import Context
from mulligan.worker.worker import Worker

URL_VARIABLE, FOLDER_VARIABLE, OWNER_VARIABLE = "MULLIGAN_TORTURE_URL", "MULLIGAN_TORTURE_FOLDER", "MULLIGAN_TORTURE_OWNER"
LEDGER_FILE, SINK_FILE = "ledger.jsonl", "sink.bin"
BUSY_S = 0.002  # between two tries at a record of the sink that another process is at
LOOK_S = 1.0
POLICY = RetryPolicy(max_retries=MAX_RETRIES, max_crashes=MAX_CRASHES, backoff=Constant(delay=BACKOFF_S), jitter="none")


class TortureApp(Mulligan):
    """An app whose workers hold few jobs at a time and look often for those of the dead."""

    def worker(self, *, queues: Sequence[str] | None = None, **settings: Any) -> Worker:
        return super().worker(queues=queues, **{"ahead": AHEAD, "poll": POLL_S, "sweep": SWEEP_S, **settings})


def end_with(owner: int) -> None:
    """Ends this process when the one that runs the torture is gone, however it went."""

    def watch() -> None:
        pause = threading.Event()
        while True:
            try:
                os.kill(owner, 0)
            except ProcessLookupError:
                os._exit(3)
            pause.wait(LOOK_S)

    threading.Thread(target=watch, name="torture-owner", daemon=True).start()


def make_app(plant: Callable[[Store], None] | None = None) -> Mulligan:
    """The app on the store and the ledger that the environment names; `plant` may spoil the store first, to test the checker."""
    folder = os.environ.get(FOLDER_VARIABLE)
    app = TortureApp(os.environ.get(URL_VARIABLE, "memory://"), retry=POLICY)
    if folder is None:  # imported, not run
        return app
    if owner := os.environ.get(OWNER_VARIABLE):
        end_with(int(owner))
    ledger, sink = Ledger(Path(folder) / LEDGER_FILE), Sink(Path(folder) / SINK_FILE)
    ledger.note("UP", parent=os.getppid())
    if plant is not None:
        plant(app.store)
    Watched(app.store, ledger)
    watch_supervisor(ledger)
    app.on_startup(lambda: ledger.note("READY", parent=os.getppid()))
    app.on_shutdown(lambda: ledger.note("DOWN"))
    register(app, ledger, sink)
    return app


def register(app: Mulligan, ledger: Ledger, sink: Sink) -> None:
    """The two tasks. Half of the time of an execution passes before its effect and half after it, so that kills fall on both sides."""

    def begin(ctx: Context, how: str) -> None:
        facts = {"gen": ctx.job.generation, "attempt": ctx.attempt, "key": ctx.idempotency_key, "how": how}
        ledger.note("START", job=ctx.job.id, fence=ctx.fence, **facts)

    def end(ctx: Context, how: str) -> None:
        ledger.note("END", job=ctx.job.id, fence=ctx.fence, how=how)

    def told(ctx: Context, effect: Effect) -> None:
        facts = {"n": effect.n, "fenced": effect.fenced, "keyed": effect.keyed}
        ledger.note("EFFECT", job=ctx.job.id, fence=ctx.fence, gen=ctx.job.generation, key=ctx.idempotency_key, **facts)

    @app.task(queue=QUEUE, name="work")
    async def work(ctx: Context, number: int, seconds: float, fails: int, snoozes: int, holds_loop: bool) -> None:
        begin(ctx, "loop" if holds_loop else "")
        how, half_s = "stopped", lasting(ctx, seconds) / 2
        try:
            await pass_time(half_s, holds_loop=holds_loop)
            if ctx.job.snoozes < snoozes:
                how = "snooze"
                raise Snooze(BACKOFF_S)
            if ctx.job.failures < fails:
                how = "error"
                raise RuntimeError("as planned")
            while (effect := sink.apply(number, ctx.fence, ctx.job.generation)) is None:  # noqa: ASYNC110 - a file tells nobody
                await asyncio.sleep(BUSY_S)
            told(ctx, effect)
            await pass_time(half_s, holds_loop=holds_loop)
            how = "ok"
        finally:
            end(ctx, how)

    @app.task(queue=QUEUE, name="block")
    def block(ctx: Context, number: int, seconds: float, *_: object) -> None:
        begin(ctx, "")
        how, half_s = "stopped", lasting(ctx, seconds) / 2
        try:
            time.sleep(half_s)
            while (effect := sink.apply(number, ctx.fence, ctx.job.generation)) is None:
                time.sleep(BUSY_S)
            told(ctx, effect)
            time.sleep(half_s)
            how = "ok"
        finally:
            end(ctx, how)

    app.state.tasks = {"work": work, "block": block}


def lasting(ctx: Context, seconds: float) -> float:
    """How long an execution takes. One that has outlived its lease once and crashed is short afterwards: else most of those would be
    killed three times, and fail."""
    return min(seconds, SHORT_MAX_S) if ctx.job.crashes else seconds


async def pass_time(seconds: float, *, holds_loop: bool) -> None:
    """Waits, and lets nobody else do anything meanwhile if it holds the loop."""
    if holds_loop:
        time.sleep(seconds)  # noqa: ASYNC251 - a handler that blocks its loop is what this one is
    else:
        await asyncio.sleep(seconds)


def job_of(app: Mulligan, seed: int, number: int, lease_s: float) -> NewJob:
    """The job of this number, not yet stored."""
    work = work_of(seed, number, lease_s)
    task = app.state.tasks[work.task]
    if work.delay_s:
        task = task.options(delay=work.delay_s)
    job: NewJob = task.job(number, work.seconds, work.fails, work.snoozes, work.holds_loop)
    return job


def is_unwanted(number: int) -> bool:
    """Whether the job of this number is cancelled as soon as it is stored."""
    return number % CANCEL_EVERY == CANCEL_EVERY - 1


app = make_app()
