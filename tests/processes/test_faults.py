"""Processes that are killed, stopped, interrupted, or held up by a stranger's lock: nothing is lost, and nothing stale is written."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path

import pytest

from mulligan import Handle, Mulligan
from mulligan.enqueueing import INSERT_BATCH_MAX
from tests.processes.children import Nursery, until
from tests.processes.ledger import Line, read

torture = [pytest.mark.torture, pytest.mark.timeout(1_800)]
scale = [pytest.mark.scale, pytest.mark.timeout(600)]


async def noted(ledger: Path, *kinds: str, job: str = "", fence: int = 0) -> list[Line]:
    """The lines of these kinds, of one job and fence if given."""
    return [line for line in read(ledger, *kinds) if job in ("", line.job) and fence in (0, line.fence)]


@pytest.mark.parametrize("rounds", [2, pytest.param(200, marks=torture)])
async def test_a_stopped_worker_that_comes_back_writes_nothing(nursery: Nursery, app: Mulligan, rounds: int) -> None:
    """A worker stopped past its lease is taken over; continued, its outcome is refused and it says LEASE_LOST (fault 6)."""
    for number in range(rounds):
        await stop_and_take_over(nursery, app, nursery.folder / f"gate-{number}")


async def stop_and_take_over(nursery: Nursery, app: Mulligan, gate: Path) -> None:
    """One job, whose first holder is stopped in the middle and continued when it is too late."""
    stale = nursery.server(lease=0.6, poll=0.05, sweep=0.05, concurrency=1)
    handle: Handle[int] = await app.state.gated.enqueue(str(gate))
    await until(lambda: noted(nursery.ledger, "RUN", job=handle.id, fence=1))
    stale.stop_at_rest(nursery.lock_file)
    fresh = nursery.server(lease=0.6, poll=0.05, sweep=0.05, concurrency=1)
    await until(lambda: noted(nursery.ledger, "RUN", job=handle.id, fence=2))
    gate.touch()
    assert await handle.result(timeout=20) == fresh.pid
    stale.go_on()
    await until(lambda: noted(nursery.ledger, "LEASE_LOST", job=handle.id, fence=1))
    job = await handle.job()
    assert (job.status, job.result, job.fence, job.attempts, job.crashes, job.failures) == ("done", fresh.pid, 2, 2, 1, 0)
    assert [(record.fence, record.outcome) for record in job.history] == [(1, "crash")]
    runs = await noted(nursery.ledger, "RUN", job=handle.id)
    assert [(run.fence, run.pid) for run in runs] == [(1, stale.pid), (2, fresh.pid)]
    completed: list[Line] = await until(lambda: noted(nursery.ledger, "COMPLETED", job=handle.id))
    assert [(line.fence, line.pid) for line in completed] == [(2, fresh.pid)]
    # The one that lost its lease is not broken by it: both go on with other work.
    more = await app.enqueue_many([app.state.slow.job(0.05) for _ in range(10)])
    assert {await one.result(timeout=20) for one in more} == {stale.pid, fresh.pid}
    stale.finish()
    fresh.finish()


@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=torture)])
async def test_jobs_of_a_killed_worker_come_back(nursery: Nursery, app: Mulligan, kills: int) -> None:
    """kill -9 in the middle: what it held runs again elsewhere when the lease is over, counted as a crash; none is lost (fault 2)."""
    lease_s, jobs, work_s = 1.0, 600, 0.03
    survivor = nursery.server(lease=lease_s, concurrency=10, sweep=0.1)
    for killed in range(kills):
        before = len(read(nursery.ledger, "RUN"))
        victim = nursery.server(lease=lease_s, concurrency=10, sweep=0.1)
        handles = await app.enqueue_many([app.state.slow.job(work_s) for _ in range(jobs)])
        ids = {handle.id for handle in handles}

        async def at_work(victim_pid: int = victim.pid, before: int = before) -> bool:
            return len([run for run in read(nursery.ledger, "RUN")[before:] if run.pid == victim_pid]) >= 30

        await until(at_work)
        victim.kill()
        killed_s = time.monotonic()

        async def all_done(total: int = jobs * (killed + 1)) -> bool:
            return (await app.status())["default"].done == total

        await until(all_done)
        took_s = time.monotonic() - killed_s
        lines = [line for line in read(nursery.ledger) if line.job in ids]
        ended = {(line.job, line.fence) for line in lines if line.kind == "END"}
        held = {line.job for line in lines if line.kind == "CRASHED"}
        assert held
        for handle in handles:
            job = await handle.job()
            assert job.status == "done"
            assert (job.fence, job.attempts, job.crashes, job.failures) == ((2, 2, 1, 0) if job.id in held else (1, 1, 0, 0))
            assert (job.id, job.fence) in ended
        assert {line.pid for line in lines if line.kind == "RUN" and line.fence == 2} == {survivor.pid}
        print(f"{len(held)} jobs of the killed process were recovered, all done {took_s:.2f} s after the kill")
        assert took_s < lease_s + jobs * work_s / 10 + 10
    survivor.finish()


@pytest.mark.parametrize("jobs", [20_000, pytest.param(200_000, marks=scale)])
async def test_ctrl_c_in_the_middle_of_enqueue_many(nursery: Nursery, app: Mulligan, jobs: int) -> None:
    """What is stored is whole batches from the front of the list; the same call again stores the rest and repeats nothing."""
    jobs_file = nursery.folder / "jobs.json"
    first = nursery.start("bulk", nursery.url, jobs_file, jobs)
    await first.said("ready", within_s=40 + jobs / 2_000)
    first.tell("go")
    await first.said("under")
    first.interrupt()
    reported = int(await first.said("reported"))
    await first.said("interrupted")
    assert first.wait() == 130
    wanted = [job["id"] for job in json.loads(jobs_file.read_bytes())]
    stored = await ids_in(app)
    assert 0 < len(stored) < jobs
    assert len(stored) % INSERT_BATCH_MAX == 0
    assert stored == wanted[: len(stored)]
    assert len(stored) - INSERT_BATCH_MAX <= reported <= len(stored)
    assert reported % INSERT_BATCH_MAX == 0
    again = nursery.start("bulk", nursery.url, jobs_file, jobs)
    await again.said("ready", within_s=40 + jobs / 2_000)
    again.tell("go")
    assert int(await again.said("stored", within_s=40 + jobs / 2_000)) == jobs
    assert again.wait() == 0
    assert await ids_in(app) == wanted
    assert (await app.status())["default"].ready == jobs
    print(f"interrupted with {len(stored)} of {jobs} stored, {reported} of them reported")


async def ids_in(app: Mulligan) -> list[str]:
    """The ids of all stored jobs, in order."""
    return sorted([job.id async for job in app.jobs()])


@pytest.mark.parametrize("busy_timeout_s, degraded", [(0.2, True), (30, False)])
async def test_a_stranger_holds_the_write_lock(file_nursery: Nursery, file_app: Mulligan, busy_timeout_s: float, degraded: bool) -> None:
    """Workers wait while another program holds SQLite's lock, then go on by themselves: nothing lost, failed or run twice (fault 40)."""
    jobs = 300
    stranger = file_nursery.start("holder", file_nursery.database)
    await stranger.said("ready")
    handles = await file_app.enqueue_many([file_app.state.slow.job(0.01) for _ in range(jobs)])
    server = file_nursery.server(url=f"{file_nursery.url}?busy_timeout_s={busy_timeout_s}", concurrency=5, lease=30)
    await until(lambda: noted(file_nursery.ledger, "COMPLETED"))
    stranger.tell("hold")
    await stranger.said("held")
    held_s = time.monotonic()
    if degraded:
        await until(lambda: noted(file_nursery.ledger, "STORE_DEGRADED"))
    before = len(read(file_nursery.ledger, "COMPLETED"))
    await until(lambda: passed(held_s + 1.5))
    assert 0 < before < jobs
    assert len(read(file_nursery.ledger, "COMPLETED")) == before  # nothing can be written meanwhile, and nobody says it was
    stranger.tell("let go")
    await stranger.said("free")
    for handle in handles:
        await handle.result(timeout=30)
    if degraded:
        await until(lambda: noted(file_nursery.ledger, "STORE_RECOVERED"))
    server.finish()
    kinds = Counter(line.kind for line in read(file_nursery.ledger))
    assert (kinds["RUN"], kinds["COMPLETED"]) == (jobs, jobs)
    assert kinds["FAILED"] == kinds["CRASHED"] == kinds["LEASE_LOST"] == 0
    assert (kinds["STORE_DEGRADED"] > 0, kinds["STORE_RECOVERED"] > 0) == (degraded, degraded)
    for handle in handles:
        job = await handle.job()
        assert (job.status, job.attempts, job.failures, job.fence) == ("done", 1, 0, 1)


async def passed(moment_s: float) -> bool:
    """Whether this time on the monotonic clock is over."""
    return time.monotonic() >= moment_s
