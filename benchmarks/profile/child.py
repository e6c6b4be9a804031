"""The worker process that is measured: `python -m benchmarks.profile.child MODE [observed]`. Its last line is its answer, in JSON.

plain: nothing but the worker, for the processor time of the whole process. sampled: with a sampler, for where it goes.
fill TASK JOBS: makes the jobs, and measures nothing.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections import Counter
from contextlib import nullcontext
from typing import Any

from benchmarks.profile.sampler import Sampler

from mulligan import Constant, Context, Event, Mulligan, RetryPolicy

URL_VARIABLE = "MULLIGAN_PROFILE_URL"
QUEUE = "profile"
PER_CALL = 10_000
ATTEMPTS = {"noop": 1, "storm": 3}  # of a job of each task


def make_app(url: str, *, observed: bool = False) -> tuple[Mulligan, dict[str, Any]]:
    """The app both sides share, and its tasks. Observed: every event is made and heard, and a middleware stands around every handler."""
    app = Mulligan(url)

    @app.task(queue=QUEUE)
    async def noop() -> None:
        return None

    @app.task(queue=QUEUE, retry=RetryPolicy(max_retries=ATTEMPTS["storm"] - 1, backoff=Constant(delay=0.001), jitter="none"))
    async def storm(ctx: Context) -> None:
        if ctx.attempt < ATTEMPTS["storm"]:
            raise ConnectionError("try again")

    if observed:
        heard: Counter[str] = Counter()

        def hear(event: Event) -> None:
            heard[event.kind] += 1

        @app.use
        async def through(ctx: Context, call_next: Any) -> Any:
            heard[ctx.job.task] += 1
            return await call_next()

        app.events.subscribe(hear)
    return app, {"noop": noop, "storm": storm}


async def drained(url: str, *, observed: bool, sampler: Sampler | None) -> dict[str, Any]:
    """Runs all that waits with a worker of default settings; what it cost, from the worker's start to its last stored outcome."""
    app, _ = make_app(url, observed=observed)
    async with app:
        worker = app.worker(queues=[QUEUE])
        threads: dict[str, float] = {}
        cpu_s, wall_s = time.process_time(), time.perf_counter()
        with sampler or nullcontext():
            await worker.start()
            await worker.drain()
            cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - wall_s
            for thread in threading.enumerate():
                if thread.ident is not None:
                    threads[thread.name] = time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
        await worker.stop()
    answer: dict[str, Any] = {"cpu_s": cpu_s, "wall_s": wall_s, "threads": threads}
    if sampler is not None:
        answer["looks"] = sampler.looks
        answer["spots"] = [[spot.stage, spot.in_driver, seconds] for spot, seconds in sampler.seconds.items()]
    return answer


async def fill(url: str, task: str, jobs: int) -> None:
    """So many jobs wait."""
    app, tasks = make_app(url)
    async with app:
        for start in range(0, jobs, PER_CALL):
            await app.enqueue_many([tasks[task].job() for _ in range(min(PER_CALL, jobs - start))])


def main(mode: str, how: str = "", jobs: str = "0") -> None:
    """Measures once."""
    if mode == "fill":
        asyncio.run(fill(os.environ[URL_VARIABLE], how, int(jobs)))
        sys.stdout.write("filled\n")
        return
    sampler = Sampler() if mode == "sampled" else None
    answer = asyncio.run(drained(os.environ[URL_VARIABLE], observed=how == "observed", sampler=sampler))
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
