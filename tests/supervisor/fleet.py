"""A supervisor under test, as a process: its log, its children, what its jobs have noted, and an app of the test on the same store."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mulligan import Mulligan
from mulligan.core.job import Job, NewJob
from mulligan.request import Options
from tests.processes.children import PATIENCE_S, ROOT, until
from tests.processes.ledger import Line, read
from tests.supervisor import program


class Fleet:
    """`start` starts it, with options of the command; `clear` leaves nothing behind."""

    def __init__(self, folder: Path, url: str, app: Mulligan) -> None:
        self.folder = folder
        self.url = url
        self.app = app
        self.ledger = folder / "ledger.txt"
        self.log_file = folder / "log.txt"
        self.environment: dict[str, str] = {}  # more of it, for all processes
        self._processes: list[subprocess.Popen[bytes]] = []

    async def start(self, *options: object, lease: float = 1.5, processes: int | None = 1) -> subprocess.Popen[bytes]:
        """A supervisor whose children are all up."""
        process = self.launch(*options, lease=lease, processes=processes)
        wanted = processes or 1
        await self.until(lambda: len(self.up(process)) >= wanted, f"{wanted} children are up")
        return process

    def launch(self, *options: object, lease: float = 1.5, processes: int | None = 1) -> subprocess.Popen[bytes]:
        """The same, without waiting."""
        fixed = ["--store", self.url, "--lease", lease, *(["--processes", processes] if processes else [])]
        with self.log_file.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.supervisor.serve", str(os.getpid()), "worker", "tests.supervisor.program:app",
                 *map(str, [*fixed, *options])],
                cwd=ROOT,
                env={**os.environ, program.LEDGER: str(self.ledger), "PYTHONUNBUFFERED": "1", **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )  # fmt: skip
        self._processes.append(process)
        return process

    def log(self) -> str:
        """What all its processes have printed and logged."""
        return self.log_file.read_text("utf-8", "replace") if self.log_file.exists() else ""

    def _started(self) -> list[int]:
        return [int(pid) for pid in re.findall(r"^worker \S+?:(\d+):", self.log(), re.MULTILINE)]

    def up(self, parent: subprocess.Popen[bytes]) -> list[int]:
        """The children of a supervisor that have announced themselves and live, oldest first."""
        return [pid for pid in self._started() if parent_of(pid) == parent.pid]

    async def until(self, condition: Callable[[], Any], what: str = "", within_s: float = PATIENCE_S) -> Any:
        """The first true answer; fails with the log when it takes too long."""

        async def asked() -> Any:
            return condition()

        try:
            return await until(asked, within_s=within_s)
        except AssertionError:
            raise AssertionError(f"waited in vain: {what}\n{self.log()[-6_000:]}") from None

    async def noted(self, kind: str, job_id: str, count: int = 1) -> list[Line]:
        """The lines of this kind of a job, once there are so many."""
        found: list[Line] = await self.until(
            lambda: lines if len(lines := self.lines(kind, job_id)) >= count else None, f"{count} {kind} of {job_id}"
        )
        return found

    def lines(self, kind: str, job_id: str = "") -> list[Line]:
        """The lines of this kind so far."""
        return [line for line in read(self.ledger, kind) if job_id in ("", line.job)]

    def new(self, task: str, *args: Any, **options: Any) -> NewJob:
        """A job, not yet stored."""
        return self.app.build(self.app.registry.need(task), args, {}, Options().with_more(options))

    async def enqueue(self, task: str, *args: Any, **options: Any) -> str:
        """Stores a job; its id."""
        [handle] = await self.app.enqueue_many([self.new(task, *args, **options)])
        return handle.id

    async def job(self, job_id: str) -> Job:
        return await self.app.get(job_id)

    async def settled(self, job_id: str, *statuses: str) -> Job:
        """The job, once it has one of these statuses (done, by itself)."""
        wanted = statuses or ("done",)

        async def look() -> Job | None:
            job = await self.app.get(job_id)
            return job if job.status in wanted else None

        try:
            found: Job = await until(look)
        except AssertionError:
            job = await self.app.get(job_id)
            raise AssertionError(f"{job_id} is {job.status}, not {wanted}: {job}\n{self.log()[-6_000:]}") from None
        return found

    async def stop(self, process: subprocess.Popen[bytes], number: int = signal.SIGTERM, within_s: float = PATIENCE_S) -> int:
        """Sends the signal and waits for the end; the exit code."""
        process.send_signal(number)
        return await self.ended(process, within_s)

    async def ended(self, process: subprocess.Popen[bytes], within_s: float = PATIENCE_S) -> int:
        """The exit code of a process, once it has ended."""
        await self.until(lambda: process.poll() is not None, f"{process.pid} ends", within_s)
        assert process.returncode is not None
        return process.returncode

    def clear(self) -> None:
        """Whatever its state, it is gone afterwards, with its children."""
        for process in self._processes:
            children = self.up(process)
            if process.poll() is None:
                process.kill()
            process.wait(PATIENCE_S)
            for pid in children:
                if is_alive(pid):
                    os.killpg(pid, signal.SIGKILL)


def parent_of(pid: int) -> int:
    """The parent of a process; 0 if it is dead."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    state, parent = text.rpartition(")")[2].split()[:2]
    return 0 if state == "Z" else int(parent)


def is_alive(pid: int) -> bool:
    """Whether a process runs."""
    return parent_of(pid) != 0


def now_us() -> int:
    """The clock of the ledger."""
    return time.monotonic_ns() // 1_000
