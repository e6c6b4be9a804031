"""A child that dies: what it held is settled at once, and nobody is charged for what is not his."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mulligan.worker.child import Child
from tests.processes.children import until
from tests.supervisor import program
from tests.supervisor.fleet import Fleet, is_alive, now_us

SOON_US = 1_000_000  # from a death to the next start of its jobs
LONG = 3_600  # seconds of a lease that a test does not wait for


async def test_the_job_of_a_killed_child_is_settled_at_once(any_fleet: Fleet) -> None:
    """It is charged a crash, and runs again in another child within a second; the lease, an hour long, is not waited for."""
    fleet = any_fleet
    supervisor = await fleet.start("--concurrency", 2, lease=LONG, processes=2)
    gate = fleet.folder / "gate"
    job_id = await fleet.enqueue("gated", str(gate))
    [first] = await fleet.noted("RUN", job_id)
    killed_us = now_us()
    os.kill(first.pid, signal.SIGKILL)
    again = (await fleet.noted("RUN", job_id, 2))[1]
    gate.touch()
    assert again.at_us - killed_us < SOON_US
    job = await fleet.settled(job_id)
    assert (job.crashes, job.attempts, job.failures, job.result) == (1, 2, 0, again.pid)
    [record] = job.history
    assert (record.outcome, record.fence) == ("crash", 1)
    assert "signal 9 (SIGKILL)" in record.why
    assert record.started_at is not None
    assert record.ended_at is not None
    assert record.started_at <= record.ended_at
    kinds = [event.kind for event in await fleet.app.store.read_events(0, 100) if event.job_id == job_id]
    assert kinds == ["CRASHED", "RETRY_SCHEDULED"]
    assert "its worker vanished; crash 1 of at most 3, its process died of signal 9" in fleet.log()
    await fleet.until(lambda: len(fleet.up(supervisor)) == 2, "another child took its place")
    await until(lambda: _is_signed_off(fleet, first.pid))
    assert await fleet.stop(supervisor) == 0


async def _is_signed_off(fleet: Fleet, pid: int) -> bool:
    """Whether nobody counts on that process any more, and on the others still."""
    stopped = {worker.pid: worker.stopped for worker in await fleet.app.store.workers()}
    return len(stopped) == 3 and [one for one, has_stopped in stopped.items() if has_stopped] == [pid]


async def test_jobs_that_had_not_started_are_not_charged(any_fleet: Fleet) -> None:
    """A child dies with jobs it had claimed ahead: those go back uncounted, in their lane, due at once."""
    fleet = any_fleet
    fleet.environment[program.SLOW_S] = "0.05"  # a claim takes long enough that jobs are claimed ahead
    gate = fleet.folder / "gate"
    jobs = [await fleet.enqueue("slow", 0.002) for _ in range(100)]
    last = await fleet.enqueue("dies", "kill", str(gate))
    more = [await fleet.enqueue("slow", 0.002) for _ in range(300)]
    gate.touch()
    await fleet.start("--concurrency", 2, lease=LONG)
    for job_id in (*jobs, *more):
        await fleet.settled(job_id)
    found = [await fleet.job(job_id) for job_id in (*jobs, *more)]
    assert (await fleet.settled(last, "failed")).crashes == 3
    started = {line.job: 0 for line in fleet.lines("RUN")}
    for line in fleet.lines("RUN"):
        started[line.job] += 1
    assert all(job.attempts == started[job.id] for job in found)
    assert sum(job.releases for job in found) > 0, "no job was claimed ahead: the test shows nothing"
    assert all(job.crashes <= 2 for job in found)


async def test_a_claim_nobody_has_heard_of_is_given_back(any_fleet: Fleet) -> None:
    """A child dies between the answer to its claim and its word about it: the claim's id finds the jobs, and they are not charged."""
    fleet = any_fleet
    fleet.environment[program.UNHEARD] = str(fleet.folder / "unheard")
    jobs = [await fleet.enqueue("quick") for _ in range(20)]
    await fleet.start(lease=LONG)
    for job_id in jobs:
        job = await fleet.settled(job_id)
        assert (job.fence, job.attempts, job.releases, job.crashes) == (2, 1, 1, 0)
    assert (fleet.folder / "unheard").exists()


@pytest.mark.parametrize("how", ["exit", "segfault", "kill"])
async def test_a_poison_pill_kills_three_processes_at_most(fleet: Fleet, how: str) -> None:
    """It ends as failed, "crashed", after three deaths; a job beside it in the first two is not charged a third."""
    supervisor = await fleet.start("--concurrency", 10, lease=LONG)
    pill = await fleet.enqueue("dies", how)
    job = await fleet.settled(pill, "failed")
    assert (job.crashes, job.attempts, job.last_error.code if job.last_error else "") == (3, 3, "crashed")
    runs = fleet.lines("RUN", pill)
    assert len({line.pid for line in runs}) == len(runs) == 3
    other = await fleet.enqueue("quick")
    assert (await fleet.settled(other)).attempts == 1
    assert await fleet.stop(supervisor) == 0


async def test_a_job_with_two_crashes_runs_alone(any_fleet: Fleet) -> None:
    """Its third run is in a process of its own: a job that starts meanwhile runs elsewhere, and is not charged for its death."""
    fleet = any_fleet
    supervisor = await fleet.start("--concurrency", 10, lease=LONG)
    gate = fleet.folder / "gate"
    pill = await fleet.enqueue("dies_each_time", str(gate))
    for attempt in (1, 2):
        await fleet.noted("RUN", pill, attempt)
        (fleet.folder / f"gate-{attempt}").touch()
    third = (await fleet.noted("RUN", pill, 3))[2]
    beside = await fleet.enqueue("gated", str(gate))
    [run] = await fleet.noted("RUN", beside)
    assert run.pid != third.pid
    (fleet.folder / "gate-3").touch()
    job = await fleet.settled(pill, "failed")
    outcomes = [record.outcome for record in job.history]
    assert (job.crashes, job.attempts) == (3, 3)
    # Before the third one it was given back, since the process it had to run in was not there yet.
    assert (outcomes[:3], set(outcomes[2:-1]), outcomes[-1]) == (["crash", "crash", "release"], {"release"}, "crash")
    gate.touch()
    job = await fleet.settled(beside)
    assert (job.crashes, job.attempts, job.result) == (0, 1, run.pid)
    assert await fleet.stop(supervisor) == 0


async def test_a_job_that_is_cancelled_while_it_waits_to_run_alone_does_not_start(fleet: Fleet) -> None:
    """Two jobs with two crashes: one runs alone, the other waits behind it, and is cancelled there."""
    await fleet.start("--concurrency", 10, lease=LONG)
    gate = fleet.folder / "gate"
    jobs = [await fleet.enqueue("dies_each_time", str(gate)) for _ in range(2)]
    for attempt in (1, 2):
        for job_id in jobs:
            await fleet.noted("RUN", job_id, attempt)
        (fleet.folder / f"gate-{attempt}").touch()
    await fleet.until(lambda: len(fleet.lines("RUN")) == 5, "one of them runs alone")
    [waiting] = [job_id for job_id in jobs if len(fleet.lines("RUN", job_id)) == 2]

    async def is_held() -> bool:
        return (await fleet.job(waiting)).status == "processing"

    await until(is_held)
    assert await fleet.app.cancel(waiting) == "requested"
    (fleet.folder / "gate-3").touch()
    job = await fleet.settled(waiting, "cancelled", "failed")
    assert (job.status, job.crashes) == ("cancelled", 2)
    assert len(fleet.lines("RUN", waiting)) == 2


@pytest.mark.parametrize("missing", [("pidfd_open",), ("pidfd_open", "waitid")])
async def test_the_end_is_seen_where_the_system_tells_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: tuple[str, ...]
) -> None:
    """No descriptor of a process to be had: its end is looked for, and what it has left behind ends with it."""

    for name in missing:
        monkeypatch.delattr(os, name)
    left = tmp_path / "left"
    script = f"""
import os, pathlib, signal
pid = os.fork()
if pid == 0: signal.pause()
pathlib.Path({str(left)!r}).write_text(str(pid))
os._exit(7)
"""
    child = Child(1, [sys.executable, "-c", script], 1, lambda _child, _jobs: None)
    assert await asyncio.wait_for(child.ended, 20) == 7
    while is_alive(int(left.read_text())):
        await asyncio.sleep(0.01)
    child.close()


def test_the_first_process_of_a_container_lets_go_of_the_orphans_of_others() -> None:
    """They come to it when their parents die; its own children are left to those who watch them."""
    script = """
import ctypes, os, sys
from mulligan.worker.child import reap_strangers
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # orphans below come to this process, as to the first one
own = os.fork()
if own == 0: os._exit(0)
middle = os.fork()
if middle == 0:
    for _ in range(3):
        if os.fork() == 0: os._exit(0)
    os._exit(0)
os.waitpid(middle, 0)
while True:
    os.waitid(os.P_PID, own, os.WEXITED | os.WNOWAIT)
    reap_strangers({own})
    if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT).si_pid == own:
        os.waitpid(own, 0)
        break
while True:
    try: os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
    except ChildProcessError: break
    reap_strangers(set())
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=30)


@pytest.mark.parametrize("victim", ["child", "supervisor"])
async def test_what_a_handler_has_forked_ends_with_it(fleet: Fleet, victim: str) -> None:
    """The whole process group is killed: a grandchild does not outlive the child, nor a child that outlives its supervisor (fault 26)."""
    supervisor = await fleet.start(lease=LONG)
    job_id = await fleet.enqueue("forks")
    [line] = await fleet.noted("GRANDCHILD", job_id)
    grandchild = int(line.more)
    assert is_alive(grandchild)
    os.kill(line.pid if victim == "child" else supervisor.pid, signal.SIGKILL)
    await fleet.until(lambda: not is_alive(grandchild), "the grandchild ends")
