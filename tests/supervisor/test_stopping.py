"""Signals to the supervisor, and its own death."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading

from mulligan.worker.cells import new_memory
from mulligan.worker.child_link import ChildLink
from mulligan.worker.keeper import BEAT_MAX_S
from tests.processes.children import until
from tests.supervisor import program
from tests.supervisor.fleet import Fleet, is_alive

LONG = 3_600


async def test_a_signal_lets_jobs_finish_and_charges_nobody(fleet: Fleet) -> None:
    """SIGTERM under load: what runs may finish, what waits has spent nothing, and nothing is left behind (fault 14)."""
    supervisor = await fleet.start("--concurrency", 2, lease=LONG, processes=2)
    jobs = [await fleet.enqueue("slow", 0.2) for _ in range(40)]
    await fleet.until(lambda: len(fleet.lines("END")) >= 4)
    children = fleet.up(supervisor)
    assert await fleet.stop(supervisor) == 0
    assert not any(is_alive(pid) for pid in children)
    runs = [line.job for line in fleet.lines("RUN")]
    ends = [line.job for line in fleet.lines("END")]
    assert sorted(runs) == sorted(ends)
    for job_id in jobs:
        job = await fleet.job(job_id)
        expected = ("done", 1) if job_id in ends else ("pending", 0)
        assert (job.status, job.attempts) == expected


async def test_what_does_not_stop_is_ended_and_given_back(fleet: Fleet) -> None:
    """A handler that obeys goes back uncounted; one that ignores everything too, by the supervisor, which knows that it is dead."""
    supervisor = await fleet.start("--grace", 0.1, lease=LONG)
    jobs = [await fleet.enqueue("slow", 1_000), await fleet.enqueue("ignores_everything", timeout=900)]
    for job_id in jobs:
        await fleet.noted("RUN", job_id)
    children = fleet.up(supervisor)
    assert await fleet.stop(supervisor) == 0
    assert not any(is_alive(pid) for pid in children)
    for job_id in jobs:
        job = await fleet.job(job_id)
        assert (job.status, job.view, job.attempts, job.releases, job.crashes) == ("pending", "ready", 0, 1, 0)


async def test_a_child_is_seen_by_the_fleet_at_once(fleet: Fleet) -> None:
    """Long before the second time that its leases are renewed."""
    supervisor = await fleet.start(lease=LONG)

    async def is_seen() -> bool:
        return [worker.pid for worker in await fleet.app.store.workers()] == fleet.up(supervisor)

    await until(is_seen, within_s=BEAT_MAX_S / 2)
    assert await fleet.stop(supervisor) == 0


async def test_a_signal_to_every_process_is_one_signal(fleet: Fleet) -> None:
    """As whoever ends a whole service sends it: what runs may still finish, and nothing is charged or given back."""
    supervisor = await fleet.start("--grace", 1_000, lease=LONG, processes=2)
    jobs = [await fleet.enqueue("slow", 1.5) for _ in range(6)]
    for job_id in jobs:
        await fleet.noted("RUN", job_id)
    for _ in range(3):
        for pid in fleet.up(supervisor):
            os.kill(pid, signal.SIGTERM)
    assert await fleet.stop(supervisor) == 0
    for job_id in jobs:
        job = await fleet.job(job_id)
        assert (job.status, job.attempts, job.releases) == ("done", 1, 0)


async def test_the_second_signal_cuts_the_grace_time(fleet: Fleet) -> None:
    """A handler that obeys is stopped and given back uncounted, long before its grace time is over."""
    supervisor = await fleet.start("--grace", 1_000, lease=LONG)
    job_id = await fleet.enqueue("slow", 1_000)
    await fleet.noted("RUN", job_id)
    supervisor.send_signal(signal.SIGTERM)
    await fleet.until(lambda: "stopping: no more jobs are claimed" in fleet.log())
    assert await fleet.stop(supervisor) == 0
    job = await fleet.job(job_id)
    assert (job.status, job.attempts, job.releases, job.crashes) == ("pending", 0, 1, 0)


async def test_a_supervisor_that_was_stopped_blames_nobody(fleet: Fleet) -> None:
    """After SIGSTOP it has heard nothing for long; its children have done nothing wrong."""
    fleet.environment[program.SILENT_S] = "1"
    supervisor = await fleet.start(lease=0.3, processes=2)
    children = fleet.up(supervisor)
    os.kill(supervisor.pid, signal.SIGSTOP)
    await asyncio.sleep(3)  # this is the pause itself, not a wait for something
    os.kill(supervisor.pid, signal.SIGCONT)
    assert (await fleet.settled(await fleet.enqueue("quick"))).result in children
    assert fleet.up(supervisor) == children
    assert await fleet.stop(supervisor) == 0
    assert "has said nothing" not in fleet.log()


async def test_the_third_signal_ends_everything_at_once(fleet: Fleet) -> None:
    """No grace, no margin; what ran is given back all the same (fault 15)."""
    supervisor = await fleet.start("--grace", 1_000, lease=LONG)
    job_id = await fleet.enqueue("ignores_everything", timeout=None)
    await fleet.noted("RUN", job_id)
    supervisor.send_signal(signal.SIGTERM)
    await fleet.until(lambda: "stopping: no more jobs are claimed" in fleet.log())
    supervisor.send_signal(signal.SIGTERM)
    await fleet.until(lambda: fleet.log().count("told to stop again") == 2)
    assert await fleet.stop(supervisor) == 128 + signal.SIGTERM
    job = await fleet.job(job_id)
    assert (job.status, job.attempts, job.releases) == ("pending", 0, 1)


async def test_children_end_with_their_supervisor(fleet: Fleet) -> None:
    """kill -9 of the parent: the children stop at once, without grace, give back what has stopped, and are gone (fault 9)."""
    supervisor = await fleet.start("--grace", 1_000, lease=LONG, processes=2)
    job_id = await fleet.enqueue("slow", 1_000)
    await fleet.noted("RUN", job_id)
    children = fleet.up(supervisor)
    supervisor.kill()
    await fleet.until(lambda: not any(is_alive(pid) for pid in children), "the children end")
    job = await fleet.job(job_id)
    assert (job.status, job.attempts) == ("pending", 0)
    assert job.releases >= 1


def test_a_child_whose_loop_is_blocked_ends_with_its_supervisor_too() -> None:
    """A thread watches the link: no loop has to turn for it."""
    parent, child = socket.socketpair()
    link = ChildLink(os.dup(child.fileno()), new_memory(1))
    child.close()
    ended = threading.Event()
    link.end_with_parent(0.01, ended.set)
    assert not ended.wait(0.05)
    parent.close()
    assert ended.wait(10)
    link.close()


async def test_a_supervisor_that_is_paused_loses_its_leases_and_says_so(fleet: Fleet) -> None:
    """SIGSTOP past the lease: another worker runs the job; when the first goes on, its child is told, stops, and writes nothing."""
    paused = await fleet.start(lease=0.6)
    gate = fleet.folder / "gate"
    job_id = await fleet.enqueue("gated", str(gate))
    [first] = await fleet.noted("RUN", job_id)
    os.kill(paused.pid, signal.SIGSTOP)
    await fleet.start("--concurrency", 1, lease=3.0)
    second = (await fleet.noted("RUN", job_id, 2))[1]
    assert second.pid != first.pid
    os.kill(paused.pid, signal.SIGCONT)
    await fleet.until(lambda: "this worker no longer holds it" in fleet.log(), "its child is told")
    gate.touch()
    job = await fleet.settled(job_id)
    assert (job.result, job.fence, job.attempts, job.crashes) == (second.pid, 2, 2, 1)
    assert await fleet.stop(paused) == 0


async def test_jobs_that_wait_to_run_alone_are_given_back_too(fleet: Fleet) -> None:
    """SIGTERM while one job runs alone and another waits for its turn: its child gives back the first, the supervisor the second."""
    supervisor = await fleet.start("--grace", 0.1, lease=LONG)
    gate = fleet.folder / "gate"
    jobs = [await fleet.enqueue("dies_each_time", str(gate)) for _ in range(2)]
    for attempt in (1, 2):
        for job_id in jobs:
            await fleet.noted("RUN", job_id, attempt)
        (fleet.folder / f"gate-{attempt}").touch()
    await fleet.until(lambda: len(fleet.lines("RUN")) == 5, "one of them runs alone")

    async def waits() -> bool:
        return {(await fleet.job(job_id)).status for job_id in jobs} == {"processing"}

    await until(waits)
    before = {job_id: (await fleet.job(job_id)).releases for job_id in jobs}
    assert await fleet.stop(supervisor) == 0
    for job_id in jobs:
        job = await fleet.job(job_id)
        assert (job.status, job.attempts, job.crashes, job.releases - before[job_id]) == ("pending", 2, 2, 1)


async def test_a_supervisor_that_comes_back_finds_its_jobs(fleet: Fleet) -> None:
    """After kill -9 of everything, with the same command: old leases run out, and the jobs run again (fault 17)."""
    supervisor = await fleet.start(lease=1.0)
    job_id = await fleet.enqueue("dies_but_once", "none")
    assert (await fleet.settled(job_id)).attempts == 1
    gate = fleet.folder / "gate"
    job_id = await fleet.enqueue("gated", str(gate))
    [run] = await fleet.noted("RUN", job_id)
    os.kill(supervisor.pid, signal.SIGSTOP)  # so that it cannot settle what its child leaves
    os.kill(run.pid, signal.SIGKILL)
    supervisor.kill()
    await fleet.start(lease=1.0)
    gate.touch()
    job = await fleet.settled(job_id)
    assert (job.crashes, job.attempts) == (1, 2)
