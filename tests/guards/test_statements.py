"""What SQLite executes for a batch: a fixed number of statements in one transaction, whatever its width."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import groupby
from pathlib import Path

import pytest

from mulligan.core.job import LANES
from mulligan.stores.sqlite import SQLiteStore
from tests.builders import ask, claim, done, new_job, retry
from tests.guards.scene import JOBS, Scene
from tests.sqlite.tracing import Call, statements_of, texts_of

SIZES = (50, 500)
CLAIM_MAX = 4  # look, take, remember, read; when to come again is asked only by a claim that is not full
SETTLE_MAX = 3  # statements carry 512, 128, 32, ... rows, so that each is prepared once
RETRIES_MAX = 2 * SETTLE_MAX + 3  # look; write and record in such parts; one entry of the log; trim it
INSERT_MAX = 3
COMMITS_PER_1000 = 40  # claims and settles of a drain (test_store_calls.py), of which those that meet share one


@pytest.fixture
async def file(tmp_path: Path) -> AsyncIterator[SQLiteStore]:
    store = SQLiteStore(tmp_path / "jobs.db")
    await store.open()
    yield store
    await store.close()


async def count(store: SQLiteStore, call: Call) -> int:
    """How many statements a call executes. The program of a trigger is told again for each row it meets, as the statement that fired it."""
    return len(list(groupby(await statements_of(store, call))))


def commits(texts: list[str]) -> int:
    return sum(text.startswith("COMMIT") for text in texts)


async def test_a_batch_is_a_fixed_number_of_statements(file: SQLiteStore) -> None:
    """Inserting, claiming and settling hundreds of jobs takes a few statements, and one of them is never for one job."""
    asks = [ask("q", lane, priority=priority, guaranteed=100) for lane in LANES for priority in (2, 1, 0)]
    found: dict[str, list[int]] = {}
    for size in SIZES:
        new = [new_job() for _ in range(size)]
        found.setdefault("insert", []).append(await count(file, lambda store, new=new: store.insert(new)))  # type: ignore[misc]
        found.setdefault("claim", []).append(await count(file, lambda store: claim(store, *asks, total=size // 2)))  # noqa: B023
        taken = (await claim(file, *asks, total=size)).jobs
        changes = [done(job) for job in taken]
        found.setdefault("settle", []).append(await count(file, lambda store, c=changes: store.settle(c)))  # type: ignore[misc]
        await file.insert([new_job() for _ in range(size)])
        again = [retry(job, delay_s=3_600) for job in (await claim(file, *asks, total=size)).jobs]
        found.setdefault("retries", []).append(await count(file, lambda store, c=again: store.settle(c)))  # type: ignore[misc]
    print(found)
    most = {"insert": INSERT_MAX, "claim": CLAIM_MAX, "settle": SETTLE_MAX, "retries": RETRIES_MAX}
    assert {name: counts for name, counts in found.items() if max(counts) > most[name]} == {}


async def test_single_enqueues_at_the_same_time_share_transactions(file: SQLiteStore) -> None:
    """A hundred tasks that enqueue one job each wait for the disk a few times, not a hundred times."""

    async def all_together(store: SQLiteStore) -> None:
        await asyncio.gather(*(store.insert([new_job()]) for _ in range(100)))

    texts = await texts_of(file, all_together)
    print(f"{commits(texts)} commits, {len(texts)} statements")
    assert commits(texts) <= 5


async def test_a_drain_takes_few_transactions(tmp_path: Path) -> None:
    """A worker with its defaults waits for the disk at most 40 times for a thousand jobs."""
    async with Scene(f"sqlite:///{tmp_path}/jobs.db") as scene:
        await scene.fill()
        store = scene.store._inner
        assert isinstance(store, SQLiteStore)
        assert store._session is not None
        writer = store._session.writer
        before = writer._groups
        await scene.drain()
        transactions = writer._groups - before
    print(f"{transactions} transactions for {JOBS} jobs")
    assert 0 < transactions * 1_000 / JOBS <= COMMITS_PER_1000
