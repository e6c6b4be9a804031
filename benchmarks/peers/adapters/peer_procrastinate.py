"""Procrastinate on PostgreSQL with psycopg: one process, 20 jobs at once, uvloop; jobs that succeed are deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import adapter
import jobs
from counted import counter
from procrastinate import App, JobContext, PsycopgConnector, RetryStrategy

CONCURRENCY = adapter.tuned("concurrency")
LEFT = "SELECT count(*) FROM procrastinate_jobs WHERE status <> 'succeeded'"


def make_app(url: str) -> tuple[App, dict[str, Any]]:
    """The app and its four tasks."""
    app = App(connector=PsycopgConnector(conninfo=url, min_size=2, max_size=CONCURRENCY + 2))

    @app.task(name="noop")
    async def noop(number: int) -> None:
        jobs.noop(number)

    @app.task(name="storm", retry=RetryStrategy(max_attempts=jobs.ATTEMPTS), pass_context=True)
    async def storm(context: JobContext, number: int) -> None:
        jobs.storm(number, context.job.attempts + 1)

    @app.task(name="probe")
    async def probe(number: int) -> None:
        jobs.probe(number)

    @app.task(name="mortal")
    async def mortal(number: int) -> None:
        await jobs.mortal_async(number)

    return app, {"noop": noop, "storm": storm, "probe": probe, "mortal": mortal}


class Sender:
    """Enqueues."""

    def __init__(self, tasks: dict[str, Any]) -> None:
        self._tasks = tasks

    async def one(self, kind: str, number: int) -> None:
        """One job."""
        await self._tasks[kind].defer_async(number=number)

    async def bulk(self, kind: str, numbers: Sequence[int]) -> None:
        """Many in one statement."""
        await self._tasks[kind].batch_defer_async(*({"number": number} for number in numbers))


class ProcrastinatePeer:
    """The adapter."""

    async def prepare(self, url: str) -> None:
        """Its tables and functions."""
        app, _ = make_app(url)
        async with app.open_async():
            await app.schema_manager.apply_schema_async()

    async def sender(self, url: str) -> Sender:
        """Enqueues."""
        app, tasks = make_app(url)
        await app.open_async()
        return Sender(tasks)

    async def left(self, url: str) -> Callable[[], Awaitable[int]]:
        """Everything that has not succeeded."""
        return await counter(url, LEFT)

    async def work(self, url: str) -> None:
        """Its worker, which ends by itself on SIGTERM."""
        app, _ = make_app(url)
        async with app.open_async():
            working = asyncio.create_task(app.run_worker_async(concurrency=CONCURRENCY, delete_jobs="successful"))
            await asyncio.sleep(0)
            adapter.ready()
            await working


if __name__ == "__main__":
    adapter.main(ProcrastinatePeer())
