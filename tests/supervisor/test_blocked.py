"""Handlers that block: their leases live on, because another process renews them."""

from __future__ import annotations

from tests.supervisor.fleet import Fleet

LEASE_S = 0.6
BLOCKED_S = 2  # more than three leases, and a whole number for the C library's sleep


async def test_a_blocked_handler_keeps_its_lease(fleet: Fleet) -> None:
    """The loop, a thread and the interpreter itself are held for three lease times, while idle children look for lapsed leases: each job
    runs once, under its first fence (faults 23, 24, 25)."""
    tasks = ("blocks_the_loop", "holds_the_interpreter", "waits_in_a_thread")
    supervisor = await fleet.start("--concurrency", 1, lease=LEASE_S, processes=4)
    jobs = [await fleet.enqueue(task, BLOCKED_S) for task in tasks]
    for job_id in jobs:
        [begun] = await fleet.noted("RUN", job_id)
        job = await fleet.settled(job_id)
        [ended] = fleet.lines("END", job_id)
        assert ended.at_us - begun.at_us > 3 * LEASE_S * 1e6
        assert (job.fence, job.attempts, job.crashes, job.history) == (1, 1, 0, ())
    assert len({line.pid for line in fleet.lines("RUN")}) == len(jobs)
    assert await fleet.stop(supervisor) == 0
