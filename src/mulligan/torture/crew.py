"""The processes of a torture run: workers and producers, started, killed, stopped, started again, and never left behind."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import sys
from pathlib import Path

from mulligan.core.errors import IllegalMove
from mulligan.torture.plan import CONCURRENCY, Plan
from mulligan.torture.tail import Tail
from mulligan.torture.tasks import FOLDER_VARIABLE, OWNER_VARIABLE, URL_VARIABLE

GRACE_S = 10.0
END_S = 40.0  # for a clean end, which takes the grace time at most
REST_S = 20.0  # for a moment at which a process that is to be stopped holds no file lock
DYING_MAX_S = 10.0  # for a process that was killed to be dead
KEEP_S = 0.2  # between two looks at who has ended
FAILURES_MAX = 5  # workers in a row that ended by themselves


class Crew:
    """Keeps the workers of a run going. Whoever is killed is replaced at once; a child is replaced by its own worker."""

    def __init__(self, plan: Plan, url: str, folder: Path, tail: Tail) -> None:
        self._plan = plan
        self._folder = folder
        self._tail = tail
        self._environment = {**os.environ, URL_VARIABLE: url, FOLDER_VARIABLE: str(folder), OWNER_VARIABLE: str(os.getpid())}
        self.workers: dict[int, asyncio.subprocess.Process] = {}
        self.paused: set[int] = set()  # pids that are stopped
        self._all: set[asyncio.subprocess.Process] = set()
        self._failures = 0

    async def start_worker(self) -> None:
        """One more worker: a parent and its children."""
        options = {
            "--processes": self._plan.processes,
            "--concurrency": CONCURRENCY,
            "--lease": self._plan.lease_s,
            "--grace": GRACE_S,
            "--log-level": "warning",
        }
        typed = [text for name, value in options.items() for text in (name, str(value))]
        with (self._folder / "workers.log").open("ab") as log:
            process = await self._start("-m", "mulligan", "worker", self._plan.app, *typed, stdout=log.fileno(), stderr=log.fileno())
        self.workers[process.pid] = process

    async def start_producer(self) -> asyncio.subprocess.Process:
        """A producer that reads what it is to store."""
        pipe = asyncio.subprocess.PIPE
        program = ("-m", "mulligan.torture.producer", str(self._plan.seed), str(self._plan.lease_s))
        with (self._folder / "producers.log").open("ab") as log:
            return await self._start(*program, stdin=pipe, stdout=pipe, stderr=log.fileno())

    async def start_holder(self, file: Path, seconds: float) -> asyncio.subprocess.Process:
        """Holds the write lock of a SQLite file; says so when it has it, and since when."""
        return await self._start("-m", "mulligan.torture.holder", str(file), str(seconds), stdout=asyncio.subprocess.PIPE)

    async def start_command(self, *command: str) -> asyncio.subprocess.Process:
        """A command of the caller's."""
        return await self._started(command, stdout=asyncio.subprocess.DEVNULL)

    async def _start(self, *arguments: str, **streams: int) -> asyncio.subprocess.Process:
        return await self._started((sys.executable, *arguments), **streams)

    async def _started(self, command: tuple[str, ...], **streams: int) -> asyncio.subprocess.Process:
        given = {"stdin": asyncio.subprocess.DEVNULL, **streams}
        process = await asyncio.create_subprocess_exec(*command, env=self._environment, process_group=0, **given)  # type: ignore[arg-type]
        self._all.add(process)
        return process

    async def keep(self) -> None:
        """Replaces workers that ended by themselves; a few in a row are a fault of the run."""
        while True:
            for process in list(self.workers.values()):
                if process.returncode is not None:
                    self._failures += 1
                    if self._failures >= FAILURES_MAX:
                        raise IllegalMove(f"workers end by themselves, with {process.returncode}; see {self._folder / 'workers.log'}")
                    self.forget_worker(process.pid)
                    self.bury(process)
                    await self.start_worker()
            await asyncio.sleep(KEEP_S)

    def forget_worker(self, pid: int) -> asyncio.subprocess.Process:
        """It is gone, or is going to be killed: nobody else replaces it, or takes its end for a fault of its own."""
        for child in self.children_of(pid):
            self._tail.ready.pop(child, None)
        return self.workers.pop(pid)

    def bury(self, process: asyncio.subprocess.Process) -> None:
        """It has ended, and its number may be another's."""
        self._all.discard(process)

    def children_of(self, worker: int) -> list[int]:
        """All processes below a worker that are there now, also those that have not said a word yet."""
        told = {pid for pid, parent in self._tail.born.items() if parent == worker}
        with contextlib.suppress(OSError):  # not every system tells
            told |= {int(pid) for pid in Path(f"/proc/{worker}/task/{worker}/children").read_text("ascii").split()}
        return [pid for pid in told if is_child(pid, worker)]

    def send(self, pids: list[int], number: signal.Signals) -> None:
        """A signal to all of these that are still there."""
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    async def until_dead(self, pid: int) -> None:
        """Until nothing of a killed process runs any more: a busy machine may take a while to end one."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DYING_MAX_S):
                while _has_threads(pid, but="ZX"):  # noqa: ASYNC110 - only its parent is told
                    await asyncio.sleep(0.001)

    async def stop_at_rest(self, pids: list[int], lock_file: Path | None) -> bool:
        """SIGSTOP at a moment when none of them holds the file lock: one stopped inside a write would stop everybody, by design.

        A store behind a network has no such lock, and its clients may be stopped at any moment. False if there was no such moment.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + REST_S
        while loop.time() < deadline:
            self.send(pids, signal.SIGSTOP)
            while any(_has_threads(pid, but="TtZX") for pid in pids):  # noqa: ASYNC110 - the signal is on its way, and nobody tells when it arrives
                await asyncio.sleep(0.001)
            if lock_file is None or _is_free(lock_file):
                self.paused |= set(pids)
                return True
            self.send(pids, signal.SIGCONT)
            await asyncio.sleep(0.003)
        return False

    def go_on(self, pids: list[int]) -> None:
        """SIGCONT."""
        self.paused -= set(pids)
        self.send(pids, signal.SIGCONT)

    async def finish(self) -> None:
        """A clean end of all workers."""
        workers = list(self.workers.values())
        self.workers = {}
        self.send([process.pid for process in workers], signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                await asyncio.gather(*(process.wait() for process in workers))

    async def clear(self) -> None:
        """Whatever their state, all are gone afterwards."""
        alive = [process for process in self._all if process.returncode is None]  # the number of a dead one may be a stranger's
        children = [child for process in alive for child in self.children_of(process.pid)]
        for process in alive:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        self.send(children, signal.SIGKILL)
        await asyncio.gather(*(process.wait() for process in self._all))
        self._all.clear()


def is_child(pid: int, parent: int) -> bool:
    """Whether this is still that child, and no stranger that has got its number since."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()[1]) == parent
    except OSError:
        return False


def _has_threads(pid: int, but: str) -> bool:
    """Whether any thread of a process is in another state than these: stopped (T, t) or dead (Z, X)."""
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        states = [(thread / "stat").read_text("ascii", "replace").rpartition(")")[2].split()[0] for thread in threads]
    except OSError:
        return False  # it is gone
    return any(state not in but for state in states)


def _is_free(lock_file: Path) -> bool:
    """Whether nobody holds this lock now."""
    if not lock_file.exists():
        return True
    with lock_file.open("r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
