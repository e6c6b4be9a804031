"""Rolling restarts under load: one supervisor takes over from another, again and again, as a deployment does."""

from __future__ import annotations

import asyncio
import functools
import time

import pytest

from tests.processes.children import until
from tests.processes.ledger import Line
from tests.supervisor.fleet import Fleet, now_us

GRACE_S = 0.5
MARGIN_S = 6.0  # beyond it, for handlers to obey, for the last writes, and for a busy machine to end processes
AGAIN_US = 1_000_000  # from a release to the next start
AHEAD = 30  # jobs at any time: fewer than there are slots, so that nothing waits for another to end
torture = [pytest.mark.torture, pytest.mark.timeout(1_800)]


class Load:
    """Keeps the fleet busy with short jobs, and some that outlast the grace time when it stops."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.jobs: list[str] = []
        self.stopped = asyncio.Event()

    async def run(self) -> None:
        while not self.stopped.is_set():
            ended = len(self._fleet.lines("END"))
            if len(self.jobs) - ended < AHEAD:
                new = [self._fleet.new("slow", 0.05 if number % 10 else GRACE_S * 3) for number in range(20)]
                self.jobs += [handle.id for handle in await self._fleet.app.enqueue_many(new)]
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("restarts", [2, pytest.param(100, marks=torture)])
async def test_rolling_restarts_lose_and_charge_nothing(fleet: Fleet, restarts: int) -> None:
    """Each supervisor ends within its grace time; a job is charged for its starts that were not given back, and for nothing else; what
    is given back starts again within a second (fault 16)."""
    wall_us = time.time_ns() // 1_000 - now_us()  # this store tells the host's time
    load = Load(fleet)
    loading = asyncio.create_task(load.run())
    current = await fleet.start("--grace", GRACE_S, "--concurrency", 50, lease=3_600, processes=2)
    ends_us: list[int] = []
    for _ in range(restarts):
        await until(functools.partial(_has_moved, fleet, len(fleet.lines("END"))))
        successor = await fleet.start("--grace", GRACE_S, "--concurrency", 50, lease=3_600, processes=2)
        told_us = now_us()
        assert await fleet.stop(current) == 0
        ends_us.append(now_us() - told_us)
        assert ends_us[-1] < (GRACE_S + MARGIN_S) * 1e6
        current = successor
    load.stopped.set()
    await loading
    for job_id in load.jobs:
        await fleet.settled(job_id)
    released, again_us = await judge(fleet, load.jobs, wall_us)
    ends_us.sort()
    print(
        f"{restarts} restarts, a grace time of {GRACE_S} s: ended after {ends_us[len(ends_us) // 2] / 1e6:.2f} s in the middle and "
        f"{ends_us[-1] / 1e6:.2f} s at worst; {len(load.jobs)} jobs, {released} given back, again after {again_us / 1e6:.3f} s at worst"
    )
    assert released > 0, "nothing was given back: the test shows nothing"
    await until(lambda: _no_more(fleet))
    assert await fleet.stop(current) == 0


async def judge(fleet: Fleet, jobs: list[str], wall_us: int) -> tuple[int, int]:
    """Holds each job to what the ledger says of it; how often one was given back, and after how long the last one started again."""
    runs: dict[str, list[Line]] = {}
    for line in fleet.lines("RUN"):
        runs.setdefault(line.job, []).append(line)
    released = worst_us = 0
    for job_id in jobs:
        job = await fleet.job(job_id)
        given_back = [record for record in job.history if record.outcome == "release"]
        stopped = sum(record.started_at_us is not None for record in given_back)
        assert (job.status, job.attempts, job.crashes, job.failures) == ("done", 1, 0, 0)
        assert len(runs[job_id]) == job.attempts + stopped
        for record in given_back:
            released += 1
            assert record.ended_at_us is not None
            again_us = min(line.at_us for line in runs[job_id] if line.fence > record.fence)
            waited_us = again_us - (record.ended_at_us - wall_us)
            assert waited_us < AGAIN_US
            worst_us = max(worst_us, waited_us)
    return released, worst_us


async def _has_moved(fleet: Fleet, ended: int) -> bool:
    return len(fleet.lines("END")) > ended + 10


async def _no_more(fleet: Fleet) -> bool:
    return not [job async for job in fleet.app.jobs(status="processing")]
