"""The app of the tests about limits: a queue for every kind of limit, and tasks that note when they start and when they end.

The numbers stand here once: the app is set up by them, and limited_rules.py holds the ledger to them.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from pathlib import Path
from typing import Any

from mulligan import Constant, Context, Downstream, Event, Mulligan, NewJob, Queue, Rate, RetryBudget, RetryPolicy, Separate
from tests.processes.ledger import Ledger

LEASE_S = 1.0
MAX_RETRIES, MAX_CRASHES = 4, 3
CAP, RETRY_CAP, KEY_CAP = 4, 2, 2  # of queue caps
APART_CAP = 2  # retries of queue apart
RATE_S, RATE_BURST = 6, 3  # of queue rated, of task metered and of what task call depends on
BUDGET_S, BUDGET_BURST = 3, 2  # of the same three, and of each tenant of queue apart
RATIO, FLOOR_S, RATIO_BURST = 0.25, 2, 2  # of queue ratio
DOWNSTREAM = "shop"
KEYS, TENANTS = ("red", "green", "blue"), ("ann", "bob")
NOTED = ("LEASE_LOST", "CRASHED", "STORE_DEGRADED", "STORE_RECOVERED")

POLICY = RetryPolicy(max_retries=MAX_RETRIES, max_crashes=MAX_CRASHES, backoff=Constant(delay=0.05), jitter="none")
_RATE = Rate(per_s=RATE_S, burst=RATE_BURST)
_BUDGET = RetryBudget(per_s=BUDGET_S, burst=BUDGET_BURST)


def mono_us() -> int:
    """A clock that is the same for all processes of a machine, and that nobody sets."""
    return time.monotonic_ns() // 1_000


def tell(ledger: Ledger, kind: str, job: str = "-", fence: int = 0, **more: Any) -> None:
    """One line with the time of now; what else there is to say comes as JSON."""
    ledger.note(kind, job, fence, mono_us(), json.dumps(more, separators=(",", ":")))


def make_limited_app(url: str, ledger: Ledger) -> Mulligan:
    """The app on this store."""
    app = Mulligan(url, retry=POLICY)
    app.queues(
        Queue("caps", concurrency=CAP, max_inflight_retries=RETRY_CAP, key_concurrency=KEY_CAP),
        Queue("apart", claim=Separate(APART_CAP), budget=RetryBudget(per_s=BUDGET_S, burst=BUDGET_BURST, each_tenant=True)),
        Queue("rated", rate=_RATE, budget=_BUDGET),
        Queue("ratio", budget=RetryBudget(ratio=RATIO, min_per_s=FLOOR_S, burst=RATIO_BURST)),
        Queue("shop"),
    )
    app.downstreams(Downstream(DOWNSTREAM, breaker=None, rate=_RATE, budget=_BUDGET))

    def hear(event: Event) -> None:
        if event.kind in NOTED:
            tell(ledger, event.kind, event.job_id or "-", event.fence)

    app.events.subscribe(hear)

    async def noted(ctx: Context, seconds: float, fails: int, gate: str) -> None:
        """One execution: it lasts so long, or until the gate is open, and fails as often as it shall."""
        tell(ledger, "START", ctx.job.id, ctx.fence)
        outcome = "stopped"
        try:
            await asyncio.sleep(seconds)
            if ctx.job.failures < fails:
                outcome = "error"
                raise RuntimeError("as planned")
            while gate and not Path(gate).exists():  # the test makes the file
                await asyncio.sleep(0.01)
            outcome = "ok"
        finally:
            tell(ledger, "END", ctx.job.id, ctx.fence, outcome=outcome)

    @app.task
    async def work(ctx: Context, seconds: float, fails: int, gate: str = "") -> None:
        await noted(ctx, seconds, fails, gate)

    @app.task(depends_on=DOWNSTREAM)
    async def call(ctx: Context, seconds: float, fails: int) -> None:
        await noted(ctx, seconds, fails, "")

    @app.task(rate=_RATE, budget=_BUDGET)
    async def metered(ctx: Context, seconds: float, fails: int) -> None:
        await noted(ctx, seconds, fails, "")

    app.state.work = work
    app.state.by_queue = {"caps": work, "apart": work, "rated": work, "ratio": metered, "shop": call}
    return app


def some_jobs(app: Mulligan, rng: random.Random, queue: str, count: int) -> list[NewJob]:
    """Short jobs of a queue; most of them fail once or twice, a few always. Where slots are few, jobs last longer than a claim takes."""
    jobs = []
    least_s, most_s = (0.1, 0.4) if queue in ("caps", "apart") else (0.01, 0.05)
    for _ in range(count):
        options: dict[str, Any] = {"queue": queue}
        if queue == "caps" and rng.random() < 0.6:
            options["concurrency_key"] = rng.choice(KEYS)
        if queue == "apart":
            options["fair_key"] = rng.choice(TENANTS)
        [fails] = rng.choices((0, 1, 2, 99), (35, 40, 20, 5))
        jobs.append(app.state.by_queue[queue].options(**options).job(round(rng.uniform(least_s, most_s), 3), fails))
    return jobs


def held_job(app: Mulligan, gate: Path, *, queue: str = "caps", fails: int = 0, key: str | None = None) -> NewJob:
    """A job that runs until the gate is open; with `fails`, as a retry."""
    job: NewJob = app.state.work.options(queue=queue, concurrency_key=key).job(0.0, fails, str(gate))
    return job
