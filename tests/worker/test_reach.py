"""How far claims reach ahead of the free slots while jobs are short: as far as the worker could be through before the next answer."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

from mulligan import Constant, Context, RetryPolicy
from tests.faults import FaultyStore
from tests.virtual import Stage, play

SLOTS = 10


class FarStore(FaultyStore):
    """A store that takes its time, and notes how many jobs each claim asked for and got."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.asked: list[int] = []
        self.got: list[int] = []

    async def claim(self, *args: Any) -> Any:
        await asyncio.sleep(0.5)
        claimed = await self._inner.claim(*args)
        self.asked.append(args[3])
        self.got.append(len(claimed.jobs))
        return claimed

    async def settle(self, changes: Any) -> Any:
        await asyncio.sleep(0.5)
        return await self._inner.settle(changes)


async def drained(stage: Stage, store: FarStore) -> FarStore:
    """The store, after a worker has drained the app through it."""
    stage.app.store = store  # type: ignore[assignment]
    async with stage.worker(concurrency=SLOTS) as worker:
        await worker.drain()
    return store


def test_claims_grow_while_the_worker_waits_for_them(tmp_path: Path) -> None:
    """Jobs that are through before the next claim is answered could be twice as many; their pace until then is only that of the claims."""

    async def scene(stage: Stage) -> FarStore:
        @stage.app.task
        async def work() -> None: ...

        await stage.app.enqueue_many([work.job() for _ in range(5_000)])
        return await drained(stage, FarStore(stage.app.store))

    store = play("memory", tmp_path, scene)
    growing = store.got[1 : next(place for place, asked in enumerate(store.asked) if asked > 1_000)]
    assert all(later >= 2 * sooner for sooner, later in pairwise(growing))


def test_waves_of_retries_are_claimed_as_wide_as_they_come(tmp_path: Path) -> None:
    """What fails is due again a batch at a time, so a claim often finds less than it asked for. The next one does not begin anew."""

    async def scene(stage: Stage) -> FarStore:
        @stage.app.task(retry=RetryPolicy(max_retries=9, backoff=Constant(delay=0.001), jitter="none"))
        async def work(ctx: Context) -> None:
            if ctx.attempt < 10:
                raise ConnectionError

        await stage.app.enqueue_many([work.job() for _ in range(2_000)])
        return await drained(stage, FarStore(stage.app.store))

    store = play("memory", tmp_path, scene)
    after_less = [asked for before, got, asked in zip(store.asked, store.got, store.asked[1:], strict=False) if 100 < got < before]
    assert len(after_less) > 5
    assert min(after_less) > SLOTS


class StumblingStore(FarStore):
    """A store that answers at once, but for one claim."""

    async def claim(self, *args: Any) -> Any:
        await asyncio.sleep(1.0 if len(self.asked) == 2 else 0.001)
        claimed = await self._inner.claim(*args)
        self.asked.append(args[3])
        return claimed

    async def settle(self, changes: Any) -> Any:
        return await self._inner.settle(changes)


def test_a_store_that_stands_still_once_widens_no_claim(tmp_path: Path) -> None:
    """All jobs that run end before its answer, and yet they are no short ones."""

    async def scene(stage: Stage) -> FarStore:
        @stage.app.task
        async def work() -> None:
            await asyncio.sleep(0.2)

        await stage.app.enqueue_many([work.job() for _ in range(10 * SLOTS)])
        return await drained(stage, StumblingStore(stage.app.store))

    store = play("memory", tmp_path, scene)
    assert max(store.asked) == SLOTS


def test_one_short_job_before_long_ones_says_nothing_of_them(tmp_path: Path) -> None:
    """A claim that fills all slots with long jobs, while the one job there was before ended: no more are held that cannot start."""

    async def scene(stage: Stage) -> list[int]:
        @stage.app.task
        async def short() -> None: ...

        @stage.app.task
        async def long() -> None:
            await asyncio.sleep(600)

        await short.enqueue()
        store = stage.app.store = FarStore(stage.app.store)  # type: ignore[assignment]
        async with stage.worker(concurrency=SLOTS):
            while not store.got:  # type: ignore[attr-defined]
                await asyncio.sleep(0.01)
            await stage.app.enqueue_many([long.job() for _ in range(500)])
            await asyncio.sleep(300)
            return store.got  # type: ignore[attr-defined,no-any-return]

    got = play("memory", tmp_path, scene)
    assert got[:2] == [1, SLOTS]
    assert sum(got) <= 1 + SLOTS + 2


def test_jobs_that_end_together_long_before_a_claim_are_not_short(tmp_path: Path) -> None:
    """Jobs that last several claims, and end at the same moment: claims do not set their pace."""

    async def scene(stage: Stage) -> list[int]:
        @stage.app.task
        async def work() -> None:
            await asyncio.sleep(3)

        await stage.app.enqueue_many([work.job() for _ in range(500)])
        store = stage.app.store = FarStore(stage.app.store)  # type: ignore[assignment]
        async with stage.worker(concurrency=SLOTS):
            await asyncio.sleep(60)
            return store.got  # type: ignore[attr-defined,no-any-return]

    got = play("memory", tmp_path, scene)
    assert got[:2] == [SLOTS, SLOTS]
    assert got[2] <= 2 * SLOTS
