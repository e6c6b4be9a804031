"""pgqueuer on PostgreSQL with asyncpg: batches of 100, the largest its benchmark uses, its default durability, uvloop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

import adapter
import asyncpg
import jobs
from pgqueuer import PgQueuer, Queries
from pgqueuer.db import AsyncpgPoolDriver
from pgqueuer.errors import RetryRequested
from pgqueuer.models import Job

BATCH = adapter.tuned("batch")


class Sender:
    """Enqueues over one connection."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries

    async def one(self, kind: str, number: int) -> None:
        """One job."""
        await self._queries.enqueue(kind, b"%d" % number)

    async def bulk(self, kind: str, numbers: Sequence[int]) -> None:
        """Many in one statement."""
        await self._queries.enqueue([kind] * len(numbers), [b"%d" % number for number in numbers], [0] * len(numbers))


class PgQueuerPeer:
    """The adapter."""

    async def prepare(self, url: str) -> None:
        """Its tables and triggers, and what it advises for autovacuum."""
        queries = Queries.from_asyncpg_connection(await asyncpg.connect(url))
        await queries.install()
        await queries.optimize_autovacuum()

    async def sender(self, url: str) -> Sender:
        """Enqueues. One connection is faster for one caller; for many its guide advises a pool of this size."""
        if adapter.asked_for("--how") == "crowd":
            return Sender(Queries(AsyncpgPoolDriver(await asyncpg.create_pool(url, min_size=5, max_size=20))))
        return Sender(Queries.from_asyncpg_connection(await asyncpg.connect(url)))

    async def left(self, url: str) -> Callable[[], Awaitable[int]]:
        """Finished jobs leave its table."""
        connection = await asyncpg.connect(url)

        async def count() -> int:
            return int(await connection.fetchval("SELECT count(*) FROM pgqueuer"))

        return count

    async def work(self, url: str) -> None:
        """One process; connections of a pool, as its guide to performance advises."""
        pool = await asyncpg.create_pool(url, min_size=2, max_size=4)
        app = PgQueuer.from_asyncpg_pool(pool)
        stop = adapter.stop_event()
        _register(app)
        app.shutdown = app.qm.shutdown = app.sm.shutdown = stop
        adapter.ready()
        await app.run(batch_size=BATCH, dequeue_timeout=timedelta(seconds=30))


def _register(app: Any) -> None:
    @app.entrypoint("noop")  # type: ignore[untyped-decorator]
    async def noop(job: Job) -> None:
        jobs.noop(int(job.payload or b"0"))

    @app.entrypoint("storm")  # type: ignore[untyped-decorator]
    async def storm(job: Job) -> None:
        try:
            jobs.storm(int(job.payload or b"0"), job.attempts + 1)
        except jobs.TryAgain as problem:
            raise RetryRequested from problem

    @app.entrypoint("probe")  # type: ignore[untyped-decorator]
    async def probe(job: Job) -> None:
        jobs.probe(int(job.payload or b"0"))

    @app.entrypoint("mortal")  # type: ignore[untyped-decorator]
    async def mortal(job: Job) -> None:
        await jobs.mortal_async(int(job.payload or b"0"))


if __name__ == "__main__":
    adapter.main(PgQueuerPeer())
