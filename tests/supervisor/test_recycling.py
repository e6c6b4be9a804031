"""Children that are replaced by count or by size: no job is lost, and none is charged."""

from __future__ import annotations

import re

from tests.supervisor.fleet import Fleet

LONG = 3_600


async def test_a_child_is_replaced_after_so_many_jobs(fleet: Fleet) -> None:
    """Work goes on across replacements: every job runs once, and in the end other processes are there than in the beginning."""
    supervisor = await fleet.start("--max-jobs", 40, "--concurrency", 4, lease=LONG, processes=2)
    first = set(fleet.up(supervisor))
    gate = fleet.folder / "gate"
    long = await fleet.enqueue("gated", str(gate))
    jobs = [await fleet.enqueue("slow", 0.01) for _ in range(300)]
    for job_id in jobs:
        job = await fleet.settled(job_id)
        assert (job.attempts, job.crashes, job.failures) == (1, 0, 0)
    gate.touch()
    job = await fleet.settled(long)
    await fleet.until(lambda: len(fleet.up(supervisor)) >= 2 and not first & set(fleet.up(supervisor)), "both have gone")
    assert (job.attempts, job.crashes) == (1, 0)
    assert len(fleet.lines("RUN")) == len(jobs) + 1
    assert (await fleet.settled(await fleet.enqueue("quick"))).result not in first
    assert await fleet.stop(supervisor) == 0
    assert "ended with" not in fleet.log()


async def test_nobody_is_started_any_more_once_it_is_told_to_stop(fleet: Fleet) -> None:
    """A signal in the middle of a replacement: the old child finishes within its grace time, and no other process is started for it."""
    supervisor = await fleet.start("--max-jobs", 1, "--grace", 3, "--concurrency", 2, lease=LONG)
    long = await fleet.enqueue("slow", 2)
    await fleet.noted("RUN", long)
    await fleet.settled(await fleet.enqueue("quick"))
    await fleet.until(lambda: "worker process 1 is replaced" in fleet.log(), "it is replaced")
    assert await fleet.stop(supervisor) == 0
    assert (await fleet.job(long)).status == "done"
    assert len(re.findall(r"worker process 1 is \d+", fleet.log())) <= 2


async def test_a_child_that_grows_is_replaced(fleet: Fleet) -> None:
    """A handler that leaks: the process is replaced before it is too large, and every job runs once (fault 27)."""
    supervisor = await fleet.start("--max-memory", 160, "--concurrency", 1, lease=LONG)
    [first] = fleet.up(supervisor)
    jobs = [await fleet.enqueue("leaks", 40) for _ in range(4)]
    for job_id in jobs:
        assert (await fleet.settled(job_id)).attempts == 1
    await fleet.until(lambda: "it has grown to" in fleet.log(), "it is replaced")
    await fleet.until(lambda: (up := fleet.up(supervisor)) and first not in up, "the old one has gone")
    job = await fleet.settled(await fleet.enqueue("leaks", 1))
    assert job.result != first
    assert await fleet.stop(supervisor) == 0
