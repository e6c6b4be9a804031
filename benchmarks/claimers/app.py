"""The app whose workers are measured: a task that does nothing, and one that computes for a millisecond."""

from __future__ import annotations

import mmap
import os
import time
from functools import cache
from pathlib import Path

from mulligan import Mulligan

QUEUE = "q"
FOLDER = "MULLIGAN_CLAIMERS_FOLDER"  # where each process counts its jobs
CPU_NS = 1_000_000
CELL = 8
app = Mulligan("memory://")  # the command line names the store


@cache
def counter() -> memoryview:
    """This process's number of jobs, in memory that is a file: it outlives the process, and a job pays next to nothing for it."""
    file = Path(os.environ[FOLDER]) / str(os.getpid())
    file.write_bytes(bytes(CELL))
    with file.open("r+b") as whole:
        return memoryview(mmap.mmap(whole.fileno(), CELL)).cast("Q")


def counted(folder: Path) -> list[int]:
    """The jobs of each process that had any."""
    return [int(memoryview(file.read_bytes()).cast("Q")[0]) for file in folder.iterdir()]


@app.task(name="nothing", queue=QUEUE)
async def nothing() -> None:
    """As little as a job can do."""
    counter()[0] += 1


@app.task(name="computes", queue=QUEUE)
async def computes() -> None:
    """A millisecond of this thread's own CPU time: on a wall clock, processes that wait for a core would seem to work."""
    until_ns = time.thread_time_ns() + CPU_NS
    while time.thread_time_ns() < until_ns:
        pass
    counter()[0] += 1
