"""Leases: kept while a handler runs, taken over when its holder is gone, and never written by a holder that lost it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

from mulligan import Mulligan, StoreUnavailable
from mulligan.core.change import Change, Verdict
from tests.builders import release
from tests.conftest import url_of
from tests.faults import FaultyStore
from tests.seeds.scenes import change_store
from tests.virtual import Stage, play


def test_m10_a_long_job_keeps_its_lease(backend: str, tmp_path: Path) -> None:
    """A handler that runs for many lease times is renewed all along: no other worker gets it."""

    async def scene(stage: Stage) -> None:
        starts: list[float] = []

        @stage.app.task
        async def long() -> None:
            starts.append(stage.elapsed_s)
            await asyncio.sleep(60)

        handle = await long.enqueue()
        async with stage.worker(lease=10) as one, stage.worker(lease=10):
            await one.drain()
            while (await handle.job()).status != "done":
                await asyncio.sleep(5)
        assert len(starts) == 1
        assert (await handle.job()).fence == 1

    play(backend, tmp_path, scene)


def test_an_outcome_that_waits_to_be_written_keeps_its_lease(backend: str, tmp_path: Path) -> None:
    """Work that is finished is not run again only because the store takes no outcomes for longer than a lease (B2)."""

    async def scene(stage: Stage) -> None:
        starts: list[float] = []
        until_s = 60

        class Refusing(FaultyStore):
            async def settle(self, changes: Sequence[Change]) -> list[Verdict]:
                if stage.elapsed_s < until_s and any(change.cause == "success" for change in changes):
                    raise StoreUnavailable("it takes no outcomes now")
                return await inner.settle(changes)

        @stage.app.task
        async def work() -> None:
            starts.append(stage.elapsed_s)

        handle = await work.enqueue()
        inner = stage.app.store
        change_store(stage.app, Refusing(inner))
        async with stage.worker(lease=10), stage.worker(lease=10):
            while (await handle.job()).status != "done" and stage.elapsed_s < 2 * until_s:
                await asyncio.sleep(5)
        assert stage.elapsed_s > until_s
        assert len(starts) == 1
        assert (await handle.job()).crashes == 0

    play(backend, tmp_path, scene)


def test_m10_a_vanished_holder_is_taken_over(backend: str, tmp_path: Path) -> None:
    """A claim that nobody renews goes back when its lease ends, counted as a crash, and runs again at once in the retry lane."""

    async def scene(stage: Stage) -> None:
        starts: list[float] = []

        @stage.app.task
        async def work() -> None:
            starts.append(stage.elapsed_s)

        handle = await work.enqueue()
        [lease] = await stage.app.claim(lease=20)
        async with stage.worker() as worker:
            await worker.drain()
            while (await handle.job()).status != "done":
                await asyncio.sleep(0.5)
        job = await handle.job()
        assert (job.crashes, job.failures, job.attempts, job.fence, job.lane) == (1, 0, 2, 2, "retry")
        assert job.history[0].outcome == "crash"
        assert 20 <= starts[0] <= 21.1
        assert await lease.complete("too late") is False
        assert await lease.extend() is False
        assert await lease.release() is False
        assert (await handle.job()).result is None
        assert [event.kind for event in stage.app.events.recent(500)].count("LEASE_LOST") >= 2

    play(backend, tmp_path, scene)


def test_a_run_whose_lease_was_lost_is_stopped_and_not_recorded(backend: str, tmp_path: Path) -> None:
    """When a renewal is refused the handler is stopped, LEASE_LOST is published, and nothing of that run is written."""

    async def scene(stage: Stage) -> None:
        ends: list[str] = []

        @stage.app.task
        async def work() -> str:
            try:
                await asyncio.sleep(3_600)
            except asyncio.CancelledError:
                ends.append("stopped")
                raise
            return "never"

        handle = await work.enqueue()
        async with stage.worker(lease=30):
            await asyncio.sleep(1)
            job = await handle.job()
            # Another process takes the job over behind this worker's back.
            [verdict] = await stage.app.store.settle([release(job, delay_s=3_000)])
            assert verdict.applied
            await asyncio.sleep(15)
            assert ends == ["stopped"]
            assert "LEASE_LOST" in [event.kind for event in stage.app.events.recent(100)]
            after = await handle.job()
            assert (after.status, after.fence, after.failures) == ("pending", 1, 0)

    play(backend, tmp_path, scene)


async def test_a_blocked_loop_keeps_its_lease(backend: str, tmp_path: Path) -> None:
    """The keeper has a thread of its own: a handler that blocks the loop for three lease times is not taken over (fault 23)."""
    app = Mulligan(url_of(backend, tmp_path))

    @app.task
    async def block() -> None:
        time.sleep(1.5)  # blocking the event loop is what this test is about

    async with app:
        handle = await block.enqueue()
        async with app.worker(lease=0.5) as worker:
            await worker.drain()
        job = await handle.job()
    assert (job.status, job.fence, job.crashes) == ("done", 1, 0)
