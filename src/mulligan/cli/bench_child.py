"""The worker process of `mulligan bench`: `python -m mulligan.cli.bench_child MODE [SAMPLES]`. Its last line is its answer, in JSON."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import time
from typing import Any

from mulligan.app import Mulligan
from mulligan.policy.backoff import Constant
from mulligan.policy.retry import RetryPolicy
from mulligan.worker.context import Context

URL_VARIABLE = "MULLIGAN_BENCH_URL"
QUEUE = "bench"
ATTEMPTS = 3  # of each job of the retry storm: it fails, fails and succeeds
PICKUP_LIMIT_S = 120


class Pickups:
    """How long each job waited from before its enqueue to the start of its handler, on the clock all processes share."""

    def __init__(self) -> None:
        self.waits_s: list[float] = []
        self.wanted = 0
        self.complete = asyncio.Event()

    def note(self, sent_at: float) -> None:
        """One more handler has started."""
        self.waits_s.append(time.monotonic() - sent_at)
        if len(self.waits_s) >= self.wanted:
            self.complete.set()


def make_app(url: str, pickups: Pickups | None = None) -> Mulligan:
    """The app both sides of the measurement share."""
    app = Mulligan(url)

    @app.task(queue=QUEUE)
    async def noop() -> None:
        return None

    @app.task(queue=QUEUE, retry=RetryPolicy(max_retries=ATTEMPTS - 1, backoff=Constant(delay=0.001), jitter="none"))
    async def storm(ctx: Context) -> None:
        if ctx.attempt < ATTEMPTS:
            raise ConnectionError("try again")

    @app.task(queue=QUEUE)
    async def pickup(sent_at: float) -> None:
        if pickups is not None:
            pickups.note(sent_at)

    return app


def rss_mb() -> float:
    """The most memory this process has had."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024 * 1024 if sys.platform == "darwin" else 1024)


async def drain(url: str) -> dict[str, Any]:
    """Runs all that waits, and tells how long it took: from the start of the worker to the last stored outcome."""
    async with make_app(url) as app:
        worker = app.worker(queues=[QUEUE], concurrency=100)
        start = time.perf_counter()
        await worker.start()
        await worker.drain()
        seconds = time.perf_counter() - start
        await worker.stop()
        return {"seconds": seconds, "rss_mb": rss_mb()}


async def pickup(url: str, samples: int) -> dict[str, Any]:
    """Waits idly for jobs, and tells how late each one was started."""
    pickups = Pickups()
    pickups.wanted = samples
    async with make_app(url, pickups) as app, app.worker(queues=[QUEUE]):
        print("ready", flush=True)
        async with asyncio.timeout(PICKUP_LIMIT_S):
            await pickups.complete.wait()
        return {"waits_s": pickups.waits_s}


def main(mode: str, samples: str = "0") -> None:
    """Runs one measurement."""
    url = os.environ[URL_VARIABLE]
    print(json.dumps(asyncio.run(drain(url) if mode == "drain" else pickup(url, int(samples)))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
