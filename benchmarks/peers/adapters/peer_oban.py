"""Oban for Python on PostgreSQL with psycopg: one process, 100 jobs at once, uvloop. Needs Python 3.12."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import adapter
import jobs
import psycopg
from counted import counter
from oban import Oban, worker
from oban.schema import install_sql

QUEUE = "default"
CONCURRENCY = adapter.tuned("concurrency")
LEFT = "SELECT count(*) FROM oban_jobs WHERE state NOT IN ('completed', 'cancelled')"
OPTIONS: dict[str, Any] = {"queue": QUEUE, "max_attempts": jobs.ATTEMPTS}


@worker(**OPTIONS)
class Noop:
    """Workers are found by their names."""

    async def process(self, job: Any) -> None:
        """The job."""
        jobs.noop(job.args["number"])


@worker(**OPTIONS)
class Storm:
    """Likewise."""

    async def process(self, job: Any) -> None:
        """The job."""
        jobs.storm(job.args["number"], job.attempt)

    def backoff(self, _job: Any) -> int:
        """Due at once, which is the next time that its stager looks."""
        return 0


@worker(**OPTIONS)
class Probe:
    """Likewise."""

    async def process(self, job: Any) -> None:
        """The job."""
        jobs.probe(job.args["number"])


@worker(**OPTIONS)
class Mortal:
    """Likewise."""

    async def process(self, job: Any) -> None:
        """The job."""
        await jobs.mortal_async(job.args["number"])


WORKERS: dict[str, Any] = {"noop": Noop, "storm": Storm, "probe": Probe, "mortal": Mortal}


class Sender:
    """Enqueues."""

    def __init__(self, oban: Oban) -> None:
        self._oban = oban

    async def one(self, kind: str, number: int) -> None:
        """One job."""
        await self._oban.enqueue(WORKERS[kind].new({"number": number}))

    async def bulk(self, kind: str, numbers: Sequence[int]) -> None:
        """Many in one call."""
        await self._oban.enqueue_many([WORKERS[kind].new({"number": number}) for number in numbers])


class ObanPeer:
    """The adapter."""

    async def prepare(self, url: str) -> None:
        """Its tables."""
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            await connection.execute(install_sql().encode())

    async def sender(self, url: str) -> Sender:
        """Enqueues; without queues of its own it takes no jobs."""
        oban = Oban(pool=await Oban.create_pool(url, min_size=4, max_size=20))
        await oban.start()
        return Sender(oban)

    async def left(self, url: str) -> Callable[[], Awaitable[int]]:
        """Completed jobs are kept, and do not count."""
        return await counter(url, LEFT)

    async def work(self, url: str) -> None:
        """One process."""
        stop = adapter.stop_event()
        pool = await Oban.create_pool(url, min_size=4, max_size=20)
        async with Oban(pool=pool, queues={QUEUE: CONCURRENCY}):
            adapter.ready()
            await stop.wait()


if __name__ == "__main__":
    adapter.main(ObanPeer())
