"""Handlers that block: their leases live on, because another process renews them."""

from __future__ import annotations

from mulligan.core.change import Grip
from mulligan.core.contract import Ask
from tests.processes.children import PATIENCE_S, until
from tests.supervisor import program
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


async def blocked_with_a_claim(fleet: Fleet) -> tuple[str, str]:
    """One job blocks the only child while another one, claimed by it, lies unread; then there is somebody else who could take both."""
    fleet.environment[program.SLOW_S] = "0.3"
    await fleet.start("--concurrency", 2, lease=1.0)
    gate = fleet.folder / "gate"
    blocking = await fleet.enqueue("blocks_later", str(gate), 4)
    await fleet.noted("RUN", blocking)
    unread = await fleet.enqueue("quick")

    async def is_claimed() -> bool:
        return (await fleet.job(unread)).status == "processing"

    await until(is_claimed)
    gate.touch()
    await fleet.start("--concurrency", 2, lease=1.0)
    return blocking, unread


async def test_a_claim_whose_answer_lies_unread_is_kept(fleet: Fleet) -> None:
    """A handler blocks the loop while a claim is under way: what it takes does not lapse, is not charged, and does not start late."""
    blocking, unread = await blocked_with_a_claim(fleet)
    job = await fleet.settled(unread)
    [ended] = await fleet.noted("END", blocking)
    [run] = fleet.lines("RUN", unread)
    assert (job.crashes, job.attempts, job.fence - job.releases) == (0, 1, 1)
    assert run.at_us > ended.at_us, "it was not claimed by the one that blocked: the test shows nothing"
    assert (await fleet.settled(blocking)).fence == 1


async def test_what_is_known_is_renewed_whatever_becomes_of_unread_claims(fleet: Fleet) -> None:
    """The same, but the claim cannot be looked for: the job that blocks is renewed all the same."""
    fleet.environment[program.BLIND] = "1"
    blocking, _ = await blocked_with_a_claim(fleet)
    job = await fleet.settled(blocking)
    assert (job.fence, job.crashes, len(fleet.lines("RUN", blocking))) == (1, 0, 1)
    assert "no look at claims" in fleet.log(), "there was nothing to look for: the test shows nothing"


async def test_a_job_that_runs_alone_keeps_its_lease(fleet: Fleet) -> None:
    """It holds the interpreter of its process for three lease times, from its first moment on: it is renewed all the same."""
    fleet.environment[program.SLOW_S] = "0.05"
    await fleet.start("--concurrency", 2, lease=LEASE_S, processes=2)
    job_id = await fleet.enqueue("dies_twice_then_holds", BLOCKED_S)
    job = await fleet.settled(job_id, "done", "failed")
    assert (job.status, job.crashes, job.attempts, job.fence - job.releases) == ("done", 2, 3, 3)
    assert len(fleet.lines("RUN", job_id)) == 3


async def test_lapsed_leases_are_found_while_every_child_is_blocked(any_fleet: Fleet) -> None:
    """The supervisor looks for them as well, and nothing a handler does holds it up."""
    fleet = any_fleet
    lost = await fleet.enqueue("quick")
    nothing_else = Ask(queue="default", lane="fresh", priority=0, guaranteed=1)
    claimed = await fleet.app.store.claim("c", "a worker that is gone", [nothing_else], 1, 3_600_000_000)
    assert [job.id for job in claimed.jobs] == [lost]
    await fleet.start("--concurrency", 1, lease=LEASE_S)
    blocking = await fleet.enqueue("blocks_the_loop", 2 * PATIENCE_S)
    await fleet.noted("RUN", blocking)
    await fleet.app.store.renew([Grip(job.id, job.fence) for job in claimed.jobs], 1)
    job = await fleet.settled(lost, "pending")
    assert (job.crashes, job.history[0].outcome) == (1, "crash")
    assert "the lease of a worker that is gone ran out" in job.history[0].why
