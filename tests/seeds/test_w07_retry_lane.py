"""W07 and W08: a retry lane with a concurrency of its own, and a cap on retries in flight that the store counts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mulligan import Context, Mulligan, Queue, RetryFirst, Separate
from mulligan.core.clock import ManualClock
from tests.conftest import url_of
from tests.seeds.scenes import make_retries, nothing
from tests.virtual import Stage, play


class Gauge:
    """How many jobs of each lane run, and the most that ever did at once."""

    def __init__(self) -> None:
        self.now = {"fresh": 0, "retry": 0}
        self.most = {"fresh": 0, "retry": 0}
        self.ended = {"fresh": 0, "retry": 0}

    async def hold(self, lane: str, seconds: float) -> None:
        self.now[lane] += 1
        self.most[lane] = max(self.most[lane], self.now[lane])
        await asyncio.sleep(seconds)
        self.now[lane] -= 1
        self.ended[lane] += 1


def test_w07_the_retry_lane_has_a_concurrency_of_its_own(backend: str, tmp_path: Path) -> None:
    """Three workers of ten slots: never more than two retries run at once in all of them, and fresh work has the rest."""

    async def scene(stage: Stage) -> None:
        gauge = Gauge()
        app = stage.app

        @app.task(queue="q")
        async def work(ctx: Context) -> None:
            await gauge.hold(ctx.job.lane, 1)

        await make_retries(app, work, 40)
        await app.enqueue_many([work.job() for _ in range(200)])
        app.queues(Queue("q", claim=Separate(retry_concurrency=2)))
        async with stage.worker(concurrency=10) as one, stage.worker(concurrency=10) as two, stage.worker(concurrency=10) as three:
            await asyncio.sleep(4.5)
            assert gauge.now == {"fresh": 28, "retry": 2}
            assert gauge.ended["retry"] == pytest.approx(8, abs=2)  # neither lane waits for the other
            for worker in (one, two, three):
                await worker.drain()
        assert gauge.most["retry"] == 2
        assert gauge.ended == {"fresh": 200, "retry": 40}
        assert stage.elapsed_s == pytest.approx(20, abs=3)  # forty retries, two at a time

    play(backend, tmp_path, scene)


def test_w07_retries_alone_leave_the_other_slots_free(backend: str, tmp_path: Path) -> None:
    """Without fresh work the lane still keeps to its own concurrency, so a fresh job that comes starts at once."""

    async def scene(stage: Stage) -> None:
        gauge = Gauge()
        app = stage.app

        @app.task(queue="q")
        async def work(ctx: Context) -> None:
            await gauge.hold(ctx.job.lane, 100)

        await make_retries(app, work, 40)
        app.queues(Queue("q", claim=Separate(retry_concurrency=3)))
        async with stage.worker(concurrency=10, poll=3_600, sweep=3_600, grace=0):
            await asyncio.sleep(10)
            assert gauge.now == {"fresh": 0, "retry": 3}
            await work.enqueue()
            await asyncio.sleep(0.1)
            assert gauge.now == {"fresh": 1, "retry": 3}

    play(backend, tmp_path, scene)


async def test_w08_of_many_waiting_retries_only_so_many_are_claimed(backend: str, tmp_path: Path) -> None:
    """A thousand retries are due: whatever is asked for and by whom, five are held; each that ends makes room for one."""
    async with Mulligan(url_of(backend, tmp_path), clock=ManualClock()) as app:
        task = app.task(name="work", queue="q")(nothing)
        await make_retries(app, task, 1_000)
        app.queues(Queue("q", claim=RetryFirst(), max_inflight_retries=5))
        held = await app.claim(queue="q", limit=3)
        held += await app.claim(queue="q", limit=1_000)
        assert len(held) == 5
        assert await app.claim(queue="q", limit=1_000) == []
        await app.enqueue_many([task.job() for _ in range(7)])
        fresh = await app.claim(queue="q", limit=1_000)
        assert [lease.job.lane for lease in fresh] == ["fresh"] * 7  # the cap is for retries
        assert await held[0].complete()
        assert await held[1].fail("again", after=0)
        assert await held[2].release()
        assert len(await app.claim(queue="q", limit=1_000)) == 3
        assert (await app.status())["q"].running == 5 + 7


async def test_w08_the_cap_is_counted_in_the_store(backend: str, tmp_path: Path) -> None:
    """Eight claimers at once, each with a planner of its own: together they get five retries, not five each."""
    async with Mulligan(url_of(backend, tmp_path)) as app:
        task = app.task(name="work", queue="q")(nothing)
        await make_retries(app, task, 100)
        app.queues(Queue("q", claim=RetryFirst(), max_inflight_retries=5))
        apps = [Mulligan("memory://") for _ in range(8)]
        for other in apps:
            other.store = app.store
            other.queues(Queue("q", claim=RetryFirst(), max_inflight_retries=5))
        claims = await asyncio.gather(*(other.claim(queue="q", limit=10) for other in apps))
        assert sum(map(len, claims)) == 5


async def test_w08_an_ended_lease_gives_its_place_away(backend: str, tmp_path: Path) -> None:
    """A holder that vanished blocks nobody once its lease is over; when it comes back its renewal is refused, as the cap is full."""
    clock = ManualClock()
    async with Mulligan(url_of(backend, tmp_path), clock=clock) as app:
        task = app.task(name="work", queue="q")(nothing)
        await make_retries(app, task, 10)
        app.queues(Queue("q", claim=RetryFirst(), max_inflight_retries=2))
        lost = await app.claim(queue="q", limit=10, lease=10)
        assert len(lost) == 2
        clock.advance(9.9)
        assert await app.claim(queue="q", limit=10) == []
        clock.advance(0.2)
        heirs = await app.claim(queue="q", limit=10, lease=10)
        assert len(heirs) == 2
        assert [await lease.extend() for lease in lost] == [False, False]
        assert await heirs[0].complete()
        assert [await lease.extend() for lease in lost] == [True, False]  # one place is free again, and nobody else has taken it
