"""Parts of a torture run by themselves: what its jobs are, how the file is locked, and what is noted of a supervisor."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mulligan.torture.crew import KEEP_S, Crew
from mulligan.torture.ledger import Ledger, mono_us, read_lines
from mulligan.torture.nemesis import Nemesis, Stuck
from mulligan.torture.plan import SHORT_MAX_S, Plan, work_of
from mulligan.torture.producing import Producers
from mulligan.torture.tail import Process, Tail
from mulligan.torture.tasks import LEDGER_FILE
from mulligan.torture.watching import watch_supervisor
from mulligan.worker.child import Child
from mulligan.worker.link import Holding
from mulligan.worker.solo_line import LINE_MAX, SoloLine

LEASE_S = 2.0
BUSY_S = 0.5


def test_some_jobs_outlive_their_lease() -> None:
    """About one in two hundred lasts 1.5 to 3 leases: in the loop, in a thread, and holding the loop. All others are short."""
    works = [work_of(1, number, LEASE_S) for number in range(30_000)]
    long = [work for work in works if work.seconds > SHORT_MAX_S]
    assert 0.004 < len(long) / len(works) < 0.01
    assert all(1.5 * LEASE_S <= work.seconds <= 3 * LEASE_S for work in long)
    assert {(work.task, work.holds_loop) for work in long} == {("work", False), ("block", False), ("work", True)}
    assert sum(work.holds_loop for work in long) / len(works) < 0.001
    assert work_of(1, 5, LEASE_S) == works[5]


@asynccontextmanager
async def nemesis_of(folder: Path, file: Path) -> AsyncIterator[Nemesis]:
    """One that has nobody to torture but a file."""
    plan = Plan(jobs=1, restarts=1, restart_s=0.01)
    ledger = Ledger(folder / LEDGER_FILE)
    tail = Tail(folder / LEDGER_FILE)
    crew = Crew(plan, f"sqlite:///{file}", folder, tail)
    try:
        yield Nemesis(plan, crew, Producers(plan, crew, tail), tail, ledger, file)
    finally:
        await crew.clear()
        tail.close()
        ledger.close()


async def test_a_worker_that_is_killed_is_replaced_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever replaces workers that end by themselves may see its end first: it is not theirs to replace, and no fault of the run."""
    started = 0

    async def start_worker(_crew: Crew) -> None:
        nonlocal started
        started += 1

    async def wait_long(process: asyncio.subprocess.Process) -> int:
        code = await wait(process)
        await asyncio.sleep(3 * KEEP_S)  # this process is busy
        return code

    wait = asyncio.subprocess.Process.wait
    monkeypatch.setattr(Crew, "start_worker", start_worker)
    monkeypatch.setattr(asyncio.subprocess.Process, "wait", wait_long)
    async with nemesis_of(tmp_path, tmp_path / "jobs.db") as nemesis:
        crew, tail = nemesis._crew, nemesis._tail
        for _ in range(2):
            worker = await crew.start_command("sh", "-c", "sleep 600 & wait")
            crew.workers[worker.pid] = worker
            while not (children := crew.children_of(worker.pid)):
                await asyncio.sleep(0.01)
            for child in children:
                tail.ready[child] = Process(child, worker.pid)
                tail.ready[child].worked = True
        keeping = asyncio.create_task(crew.keep())
        await nemesis._kill("kill worker")
        keeping.cancel()
        assert (started, len(crew.workers), nemesis.counts["kills"]) == (1, 1, 1)


async def test_an_outage_begins_when_the_lock_is_held(tmp_path: Path) -> None:
    """While the locking program waits for somebody else, the store is not away, and nothing says so."""
    file = tmp_path / "jobs.db"
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("CREATE TABLE t (x)")
    other.execute("BEGIN IMMEDIATE")
    freed: list[int] = []

    def free() -> None:
        freed.append(mono_us())
        other.execute("ROLLBACK")
        other.close()

    asyncio.get_running_loop().call_later(BUSY_S, free)
    async with nemesis_of(tmp_path, file) as nemesis:
        await nemesis.run(["restart"])
    start, stop = read_lines(tmp_path / LEDGER_FILE)
    assert freed[0] - 1e6 * BUSY_S / 5 < start.at < stop.at  # noted is when the try began that brought the lock
    assert (start.step, stop.step, nemesis.counts["restarts"]) == ("start", "stop", 1)


async def test_a_lock_that_fails_is_not_taken_for_an_outage(tmp_path: Path) -> None:
    """The program that was to hold it ends with an error: so does the run, and no outage is noted."""
    async with nemesis_of(tmp_path, tmp_path / "nowhere" / "jobs.db") as nemesis:
        with pytest.raises(Stuck, match="lock the file"):
            await nemesis.run(["restart"])
    assert list(read_lines(tmp_path / LEDGER_FILE)) == []
    assert nemesis.counts["restarts"] == 0


class Undertaker:
    """Takes what a full line gives back."""

    def __init__(self) -> None:
        self.given_back: list[str] = []

    async def settle(self, losses: Sequence[Any], _owner: str) -> int:
        self.given_back += [loss.job_id for loss in losses]
        return len(losses)


async def test_what_a_supervisor_does_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ALONE for what its line takes, and not for what it gives back; ENDING for a child that it kills, before it does."""
    killed: list[int] = []
    monkeypatch.setattr(SoloLine, "add", SoloLine.add)  # put back afterwards, as it was
    monkeypatch.setattr(Child, "kill", lambda child, _culprits=(): killed.append(child.pid))
    monkeypatch.setattr(SoloLine, "_is_up", lambda _line: True)  # else it takes nothing
    ledger, undertaker = Ledger(tmp_path / LEDGER_FILE), Undertaker()
    watch_supervisor(ledger)
    nothing: Any = None
    deaths: Any = undertaker
    line = SoloLine(nothing, deaths, nothing, nothing)
    line.add([Holding(-1, f"job {number}", 3) for number in range(LINE_MAX + 1)], "worker")
    await line.close()
    child = Child.__new__(Child)
    child.pid = 4_000_000
    child.kill()
    ledger.close()
    lines = list(read_lines(tmp_path / LEDGER_FILE))
    alone = [(one.job, one.fence) for one in lines if one.kind == "ALONE"]
    assert alone == [(f"job {number}", 3) for number in range(LINE_MAX)]
    assert f"job {LINE_MAX}" in undertaker.given_back
    assert [one.pids for one in lines if one.kind == "ENDING"] == [(4_000_000,)]
    assert killed == [4_000_000]
