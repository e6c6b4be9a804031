"""A worker starts only what it can be sure to hold: it counts its leases from before it asked for them, on its own clock."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.faults import FaultyStore
from tests.virtual import Stage, play

LEASE_S = 6.0


def _asks(worker: Any) -> Any:
    """What this worker would ask for, for one job."""
    return worker._fetcher._planner.asks(1)


class Slow(FaultyStore):
    """A store whose first answer to a claim that took something comes late; renewals may fail until a time."""

    def __init__(self, stage: Stage, late_s: float = 0.0, no_renewals_until_s: float = 0.0) -> None:
        super().__init__(stage.app.store)
        self._stage = stage
        self._late_s = late_s
        self._until_s = no_renewals_until_s
        stage.app.store = self

    async def claim(self, *args: Any) -> Any:
        claimed = await self._inner.claim(*args)
        if claimed.jobs and self._late_s:
            late_s, self._late_s = self._late_s, 0.0
            await asyncio.sleep(late_s)
        return claimed

    async def renew(self, *args: Any) -> Any:
        if self._stage.elapsed_s < self._until_s:
            await asyncio.sleep(self._until_s - self._stage.elapsed_s)
        return await self._inner.renew(*args)


def test_an_answer_that_comes_after_the_lease_starts_nothing(backend: str, tmp_path: Path) -> None:
    """By then the job may be another's, or even done: it is given back uncounted, and runs once it was claimed anew."""
    starts: list[tuple[int, float]] = []

    async def scene(stage: Stage) -> None:
        @stage.app.task
        async def work() -> None:
            starts.append((1, stage.elapsed_s))

        handle = await work.enqueue()
        Slow(stage, late_s=LEASE_S + 1)
        async with stage.worker(lease=LEASE_S, sweep=1_000) as worker:
            await worker.drain()
        job = await handle.job()
        assert (job.status, job.attempts, job.releases, job.crashes, job.fence) == ("done", 1, 1, 0, 2)
        assert [at_s >= LEASE_S for _, at_s in starts] == [True]

    play(backend, tmp_path, scene)


def test_an_answer_within_the_lease_starts_at_once(backend: str, tmp_path: Path) -> None:
    """Slow, but not too slow: nothing is given back."""

    async def scene(stage: Stage) -> None:
        @stage.app.task
        async def work() -> None:
            pass

        handle = await work.enqueue()
        Slow(stage, late_s=LEASE_S / 2)
        async with stage.worker(lease=LEASE_S, sweep=1_000) as worker:
            await worker.drain()
        job = await handle.job()
        assert (job.status, job.releases, job.fence) == ("done", 0, 1)

    play(backend, tmp_path, scene)


def test_a_claim_that_waited_for_the_store_is_as_good_as_any(backend: str, tmp_path: Path) -> None:
    """The store is away for longer than a lease: what the first claim after that brings has a lease of its own, and starts."""

    async def scene(stage: Stage) -> None:
        @stage.app.task
        async def work() -> None:
            pass

        store = FaultyStore(stage.app.store)
        stage.app.store = store
        handle = await work.enqueue()
        store.fail("claim", times=20)
        async with stage.worker(lease=LEASE_S) as worker:
            await worker.drain()
        job = await handle.job()
        assert stage.elapsed_s > LEASE_S, "the store was back before the lease was over: the test shows nothing"
        assert (job.status, job.releases, job.fence) == ("done", 0, 1)

    play(backend, tmp_path, scene)


def test_a_job_whose_lease_could_not_be_renewed_is_not_started(backend: str, tmp_path: Path) -> None:
    """It waited for its slot for longer than a lease, and no renewal was answered: who knows whose it is."""
    order: list[int] = []

    async def scene(stage: Stage) -> None:
        @stage.app.task
        async def work(number: int) -> None:
            order.append(number)
            await asyncio.sleep(LEASE_S + 1 if number == 0 else 0)

        handles = await stage.app.enqueue_many([work.job(number) for number in range(2)])
        store = Slow(stage, no_renewals_until_s=2 * LEASE_S)
        worker = stage.worker(lease=LEASE_S, sweep=1_000, concurrency=1)
        async with worker:
            await asyncio.sleep(1)
            # Held beyond its slots, as by a claim ahead; until then it counts on half a lease.
            claimed = await store.claim(handles[1].id, worker.name, _asks(worker), 1, round(LEASE_S * 1e6))
            worker.executor.accept(claimed.jobs, asyncio.get_running_loop().time() + LEASE_S / 2)
            await worker.drain()
        job = await handles[1].job()
        assert order == [0, 1]
        assert (job.status, job.releases, job.fence) == ("done", 1, 2)

    play(backend, tmp_path, scene)


def test_renewals_keep_a_waiting_job_sure(backend: str, tmp_path: Path) -> None:
    """A job that waits for its slot for several leases is started all the same, if its renewals are answered."""

    async def scene(stage: Stage) -> None:
        @stage.app.task
        async def work(number: int) -> None:
            await asyncio.sleep(3 * LEASE_S if number == 0 else 0)

        handles = await stage.app.enqueue_many([work.job(number) for number in range(2)])
        worker = stage.worker(lease=LEASE_S, concurrency=1)
        async with worker:
            await asyncio.sleep(1)
            store = stage.app.store
            claimed = await store.claim(handles[1].id, worker.name, _asks(worker), 1, round(LEASE_S * 1e6))
            worker.executor.accept(claimed.jobs, asyncio.get_running_loop().time() + LEASE_S / 2)
            await worker.drain()
        job = await handles[1].job()
        assert (job.status, job.releases, job.crashes, job.fence) == ("done", 0, 0, 1)

    play(backend, tmp_path, scene)


def test_a_worker_that_is_told_to_stop_during_an_outage_claims_no_more(backend: str, tmp_path: Path) -> None:
    """It waits for the store to come back when the stop comes: it ends at once, and the job is left to others."""

    async def scene(stage: Stage) -> None:
        @stage.app.task
        async def work() -> None:
            pass

        store = FaultyStore(stage.app.store)
        stage.app.store = store
        worker = stage.worker(grace=0)
        handle = await work.enqueue()
        store.fail("claim", times=1_000)
        await worker.start()
        while store.calls["claim"] < 8:
            await asyncio.sleep(0.01)
        began_s, claims = stage.elapsed_s, store.calls["claim"]
        await worker.stop()
        assert stage.elapsed_s - began_s < 0.1
        assert store.calls["claim"] == claims
        assert (await handle.job()).fence == 0

    play(backend, tmp_path, scene)
