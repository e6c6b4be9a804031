"""mulligan itself, through the same runner as everybody: its defaults, 100 jobs at once, no switch that users do not have.

With the variant "watched" everything that can be watched is: a subscriber to every event, and a middleware around every attempt.
Counters, and the log of events in the store, are always on. With the variant "sync" it is enqueued by `app.sync`, without an event loop.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import adapter
import jobs

from mulligan import Constant, Context, Event, Mulligan, RetryPolicy

QUEUE = "bench"
CONCURRENCY = 100
LOOK_S = 0.05
SPANS_MAX = 512  # that a tracer holds before it hands them over


def make_app(url: str) -> Mulligan:
    """The app both sides use."""
    app = Mulligan(url)
    at_once = RetryPolicy(max_retries=jobs.ATTEMPTS - 1, backoff=Constant(delay=0.001), jitter="none")

    @app.task(queue=QUEUE)
    async def noop(number: int) -> None:
        jobs.noop(number)

    @app.task(queue=QUEUE, retry=at_once)
    async def storm(ctx: Context, number: int) -> None:
        jobs.storm(number, ctx.attempt)

    @app.task(queue=QUEUE)
    async def probe(number: int) -> None:
        jobs.probe(number)

    @app.task(queue=QUEUE)
    async def mortal(number: int) -> None:
        await jobs.mortal_async(number)

    @app.task(queue=QUEUE)
    async def burn(number: int) -> None:
        jobs.burn(number)

    app.state.tasks = {task.name: task for task in (noop, storm, probe, mortal, burn)}
    if adapter.variant() == "watched":
        watch(app)
    return app


def watch(app: Mulligan) -> None:
    """What an exporter of metrics and a tracer would do, without the packages they would do it with."""
    seen: Counter[tuple[str, str, str]] = Counter()
    app.state.spans = []

    def count(event: Event) -> None:
        seen[event.kind, event.queue, event.task] += 1

    async def span(ctx: Context, call_next: Callable[[], Awaitable[Any]]) -> Any:
        begin_ns = time.monotonic_ns()
        try:
            return await call_next()
        finally:
            app.state.spans.append((ctx.job.id, ctx.job.task, ctx.attempt, begin_ns, time.monotonic_ns()))
            if len(app.state.spans) >= SPANS_MAX:
                app.state.spans.clear()  # as if they had been handed over

    app.events.subscribe(count)
    app.use(span)


class Sender:
    """Enqueues."""

    def __init__(self, app: Mulligan) -> None:
        self._app = app

    async def one(self, kind: str, number: int) -> None:
        """One job."""
        await self._app.enqueue(kind, args=[number])

    async def bulk(self, kind: str, numbers: Sequence[int]) -> None:
        """Many in one call."""
        task = self._app.state.tasks[kind]
        await self._app.enqueue_many([task.job(number) for number in numbers])


class BlockingSender:
    """Enqueues from threads that run no event loop."""

    def __init__(self, app: Mulligan) -> None:
        self._app = app

    def one(self, kind: str, number: int) -> None:
        """One job."""
        self._app.sync.enqueue(kind, args=[number])


class MulliganPeer:
    """The adapter."""

    async def prepare(self, url: str) -> None:
        """Opening the store makes its tables."""
        async with make_app(url):
            pass

    async def sender(self, url: str) -> Sender | BlockingSender:
        """Enqueues."""
        app = make_app(url)
        await app.open()
        return BlockingSender(app) if adapter.variant() == "sync" else Sender(app)

    async def left(self, url: str) -> Callable[[], Awaitable[int]]:
        """What waits, runs or has failed for good; what is done is kept, and does not count."""
        app = make_app(url)
        await app.open()

        async def count() -> int:
            queues = (await app.status()).queues
            return sum(one.queue_size + one.retry_queue_size + one.running + one.failed for one in queues)

        return count

    async def work(self, url: str) -> None:
        """One process; or as many as were asked for, below a supervisor."""
        stop = adapter.stop_event()
        if processes := adapter.asked_for("--processes"):
            await self._supervised(url, int(processes), stop)
            return
        async with make_app(url) as app, app.worker(queues=[QUEUE], concurrency=CONCURRENCY):
            adapter.ready()
            await stop.wait()

    async def _supervised(self, url: str, processes: int, stop: asyncio.Event) -> None:
        """The queue is paused until all processes are up, so that how long they take to start is no part of the figure."""
        command = [
            *(sys.executable, "-m", "mulligan", "worker", "peer_mulligan:app"),
            "--processes",
            str(processes),
            "--log-level",
            "error",
        ]
        async with make_app(url) as app:
            await app.pause(QUEUE)
            others = {worker.id for worker in (await app.status()).workers}  # of a supervisor before, if it ended badly

            async def new_workers() -> int:
                return len({worker.id for worker in (await app.status()).workers} - others)

            supervisor = await asyncio.create_subprocess_exec(
                *command, env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)}, stdout=asyncio.subprocess.DEVNULL
            )
            while await new_workers() < processes and supervisor.returncode is None:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(LOOK_S)
            adapter.ready()
            await app.resume(QUEUE)
            ending = asyncio.ensure_future(supervisor.wait())
            await asyncio.wait([ending, asyncio.ensure_future(stop.wait())], return_when=asyncio.FIRST_COMPLETED)
            if not ending.done():
                supervisor.terminate()
            if await ending:
                sys.exit("the supervisor failed")


# For `mulligan worker`, which imports it.
app = make_app(os.environ["BENCH_URL"])

if __name__ == "__main__":
    adapter.main(MulliganPeer())
