"""Many jobs through one table or file, finished ones removed at once: does the rate fall, and do the files grow?

On PostgreSQL this is done in two databases of one server in turns, a tenth of the jobs each time. In one of them an old transaction is open
all the time, so that no dead row can be removed; it holds up only its own database. At the end it is closed.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from os.path import getsize
from typing import Any

from benchmarks.claimers.claimer import asks
from benchmarks.growth.sites import Sites

from mulligan.core.contract import Store
from mulligan.stores import open_store
from tests.builders import claim, done, new_job

STEP = 1_000
CLAIM = 500
BACKLOG = 2_000  # jobs that wait all the time
PARTS = 10
MB = 1e6
Say = Callable[[str], None]
Sample = dict[str, Any]


class Stream:
    """A steady stream of jobs through one store, as a producer, a worker and its retention would make it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._asks = asks(CLAIM)
        self.through = 0

    async def open(self) -> None:
        """Fills the backlog."""
        await self._store.open()
        for _ in range(BACKLOG // STEP):
            await self._store.insert([new_job() for _ in range(STEP)])

    async def part(self, jobs: int, look: Callable[[], None] = lambda: None) -> Sample:
        """So many jobs; the rates of what was done to them."""
        insert_s = drain_s = prune_s = 0.0
        for _ in range(max(1, jobs // STEP)):
            began = time.perf_counter()
            await self._store.insert([new_job() for _ in range(STEP)])
            inserted = time.perf_counter()
            for _ in range(STEP // CLAIM):
                held = (await claim(self._store, *self._asks, total=CLAIM)).jobs
                assert len(held) == CLAIM
                assert all(verdict.applied for verdict in await self._store.settle([done(job) for job in held]))
            drained = time.perf_counter()
            assert await self._store.prune("done", 0, STEP) > 0
            insert_s, drain_s, prune_s = insert_s + inserted - began, drain_s + drained - inserted, prune_s + time.perf_counter() - drained
            self.through += STEP
            look()
        each = max(1, jobs // STEP) * STEP
        return {
            "after": f"{self.through:,}",
            "drained_per_s": each / drain_s,
            "inserted_per_s": each / insert_s,
            "pruned_per_s": each / prune_s,
        }

    async def close(self) -> None:
        """Closes the store."""
        await self._store.close()


async def bloat(sites: Sites, stores: list[str], jobs: int, say: Say) -> dict[str, list[Sample]]:
    """Samples over time, by what was done."""
    found: dict[str, list[Sample]] = {}
    if "postgres" in stores:
        found |= await _postgres(sites, jobs, say)
    if "sqlite" in stores:
        with sites.site("sqlite") as url:
            found["sqlite"] = await _sqlite(url, jobs, say)
    return found


async def _sqlite(url: str, jobs: int, say: Say) -> list[Sample]:
    file = url.removeprefix("sqlite:///")
    stream, samples, logs = Stream(open_store(url)), [], [0]
    await stream.open()
    try:
        for _ in range(PARTS):
            rates = await stream.part(jobs // PARTS, lambda: logs.append(getsize(f"{file}-wal")))
            samples.append({**rates, **_file_sizes(file), "largest_log_mb": max(logs) / MB})
            say(f"sqlite: {samples[-1]}")
    finally:
        await stream.close()
    return samples


def _file_sizes(file: str) -> Sample:
    return {"file_mb": getsize(file) / MB, "log_mb": getsize(f"{file}-wal") / MB}


async def _postgres(sites: Sites, jobs: int, say: Say) -> dict[str, list[Sample]]:
    server = sites.server("postgres")
    assert server is not None
    names = {"plain": "postgres", "old": "postgres, an old transaction open"}
    found: dict[str, list[Sample]] = {name: [] for name in names.values()}
    async with _database(server.url, "plain") as plain, _database(server.url, "old") as old:
        streams = {"plain": plain, "old": old}
        async with _old_transaction(_url_of(server.url, "old")):
            for number in range(PARTS):
                for name in ("plain", "old") if number % 2 else ("old", "plain"):
                    rates = await streams[name].part(jobs // PARTS)
                    found[names[name]].append({**rates, **await _sizes(server.url, name)})
                    say(f"{names[name]}: {found[names[name]][-1]}")
        for name, stream in streams.items():
            await _run(server.url, name, "VACUUM mulligan.jobs")
            sample = {**await stream.part(jobs // PARTS), **await _sizes(server.url, name)}
            found[names[name]].append({**sample, "after": f"{sample['after']}, vacuumed"})
            say(f"{names[name]}: {found[names[name]][-1]}")
    return found


def _url_of(url: str, name: str) -> str:
    return f"{url.rpartition('/')[0]}/bloat_{name}"


@asynccontextmanager
async def _database(url: str, name: str) -> AsyncIterator[Stream]:
    """A stream through a database of its own."""
    import psycopg

    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(f"CREATE DATABASE bloat_{name}")
        stream = Stream(open_store(_url_of(url, name)))
        await stream.open()
        try:
            yield stream
        finally:
            await stream.close()
            await connection.execute(f"DROP DATABASE bloat_{name} WITH (FORCE)")


@asynccontextmanager
async def _old_transaction(url: str) -> AsyncIterator[None]:
    """A session that has looked once, and forgot to end its transaction."""
    import psycopg

    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        await connection.execute("SELECT count(*) FROM mulligan.jobs")
        yield


async def _run(url: str, name: str, statement: str) -> tuple[Any, ...]:
    import psycopg

    async with await psycopg.AsyncConnection.connect(_url_of(url, name), autocommit=True) as connection:
        cursor = await connection.execute(statement)
        return (await cursor.fetchone() or ()) if cursor.description else ()


async def _sizes(url: str, name: str) -> Sample:
    jobs = "'mulligan.jobs'::regclass"
    table, indexes, dead = await _run(
        url,
        name,
        f"SELECT pg_table_size({jobs}), pg_indexes_size({jobs}), (SELECT n_dead_tup FROM pg_stat_user_tables WHERE relid = {jobs})",
    )
    return {"table_mb": table / MB, "indexes_mb": indexes / MB, "dead_rows": dead}
