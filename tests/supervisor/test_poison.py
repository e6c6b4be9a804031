"""Jobs that kill their process: they end themselves, and hardly slow the others down."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.supervisor.conftest import opened
from tests.supervisor.fleet import Fleet

LONG = 3_600
PACE_S = 0.05  # of an innocent job: long enough that the machine is not the limit
scale = [pytest.mark.scale, pytest.mark.timeout(900)]


async def load(fleet: Fleet, jobs: int, pills: list[str]) -> list[str]:
    """Stores jobs with pills spread evenly among them; the ids of the pills."""
    new = [fleet.new("slow", PACE_S) for _ in range(jobs)]
    for number, how in enumerate(pills):
        new.insert((number + 1) * jobs // (len(pills) + 2) + number, fleet.new("dies", how))
    await fleet.app.enqueue_many(new)
    return [job.id for job in new if job.task == "dies"]


def ended(fleet: Fleet) -> int:
    """Innocent jobs that have come to their end."""
    return len({line.job for line in fleet.lines("END")})


@pytest.mark.parametrize("jobs, pills, kept", [(300, 1, 0.3), pytest.param(20_000, 10, 0.9, marks=scale)])
async def test_innocent_jobs_keep_their_throughput(tmp_path: Path, jobs: int, pills: int, kept: float) -> None:
    """Two fleets work at the same time, one of them with pills among its jobs: each pill dies three times, and when the other fleet has
    finished, this one is hardly behind. Each death costs the start of a process, so a short run cannot keep nine tenths."""
    async with AsyncExitStack() as stack:
        fleets = []
        for name in ("clean", "poisoned"):
            (tmp_path / name).mkdir()
            fleets.append(await stack.enter_async_context(opened(tmp_path / name, f"sqlite:///{tmp_path}/{name}/jobs.db")))
        clean, poisoned = fleets
        dead = await load(poisoned, jobs, [("exit", "segfault", "kill")[number % 3] for number in range(pills)])
        await load(clean, jobs, [])
        await asyncio.gather(*(fleet.start("--concurrency", 5, lease=LONG, processes=4) for fleet in fleets))
        while ended(clean) < jobs:
            await asyncio.sleep(0.1)
        count = ended(poisoned)
        print(f"{count} jobs beside {pills} pills, {jobs} without: {count / jobs:.3f}")
        assert count / jobs >= kept
        for job_id in dead:
            job = await poisoned.settled(job_id, "failed")
            assert job.crashes == len({line.pid for line in poisoned.lines("RUN", job_id)}) == 3
        while ended(poisoned) < jobs:
            await asyncio.sleep(0.1)
