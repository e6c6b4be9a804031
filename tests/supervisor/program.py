"""The app that the processes of these tests run: tasks that note what they do in a ledger, and go wrong in many ways."""

from __future__ import annotations

import asyncio
import ctypes
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mulligan import Constant, Context, Job, Mulligan, RetryPolicy
from mulligan.core.errors import StoreUnavailable
from mulligan.stores.mongo.store import MongoStore
from mulligan.stores.postgres.near import PostgresNear
from mulligan.stores.redis.store import RedisStore
from mulligan.stores.sqlite.store import SQLiteStore
from mulligan.worker import supervisor
from mulligan.worker.child_link import ChildLink
from mulligan.worker.conditions import Conditions
from tests.processes.ledger import Ledger

LEDGER = "MULLIGAN_TEST_LEDGER"
UNHEARD = "MULLIGAN_TEST_UNHEARD"
SLOW_S = "MULLIGAN_TEST_SLOW_S"
SILENT_S = "MULLIGAN_TEST_SILENT_S"
BLIND = "MULLIGAN_TEST_BLIND"
POLICY = RetryPolicy(max_retries=10, backoff=Constant(delay=0.01), jitter="none")

app = Mulligan("sqlite:///never-opened.db", retry=POLICY)
ledger = Ledger(Path(os.environ.get(LEDGER, os.devnull)))
hoard: list[bytearray] = []


if UNHEARD in os.environ:  # the first child that has claimed something dies before it can tell
    tell = ChildLink.take

    async def die_once(self: ChildLink, claim_id: str, jobs: Sequence[Job]) -> list[Job]:
        try:
            os.close(os.open(os.environ[UNHEARD], os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return await tell(self, claim_id, jobs)
        end_this_process("kill")
        raise AssertionError

    ChildLink.take = die_once  # type: ignore[method-assign]


if SLOW_S in os.environ:  # a store behind a network: what it has done is known a moment later

    def late(call: Any) -> Any:
        async def answered(*args: Any) -> Any:
            answer = await call(*args)
            await asyncio.sleep(float(os.environ[SLOW_S]))
            return answer

        return answered

    for side in (SQLiteStore, PostgresNear, MongoStore, RedisStore):
        side.claim = late(side.claim)  # type: ignore[attr-defined]
    Conditions.beat = late(Conditions.beat)  # type: ignore[method-assign]

if BLIND in os.environ:  # nobody can look for claims that were not heard

    async def look(*args: Any) -> list[Job]:
        raise StoreUnavailable("injected: no look at claims")

    supervisor.still_held = look  # type: ignore[attr-defined]

if SILENT_S in os.environ:
    supervisor.SILENT_S = float(os.environ[SILENT_S])


def note(kind: str, ctx: Context) -> None:
    """One line, with a time that all processes of the machine share."""
    ledger.note(kind, ctx.job.id, ctx.fence, time.monotonic_ns() // 1_000)


def end_this_process(how: str) -> None:
    """Dies as asked."""
    if how == "exit":
        os._exit(1)
    if how == "segfault":
        ctypes.string_at(0)
    if how == "kill":  # as the kernel does when memory runs out
        os.kill(os.getpid(), signal.SIGKILL)


@app.task
async def quick(ctx: Context) -> int:
    """Ends at once."""
    note("RUN", ctx)
    note("END", ctx)
    return os.getpid()


@app.task
async def slow(ctx: Context, seconds: float) -> int:
    """Takes its time, and lets others have theirs."""
    note("RUN", ctx)
    await asyncio.sleep(seconds)
    note("END", ctx)
    return os.getpid()


@app.task
async def gated(ctx: Context, gate: str) -> int:
    """Ends when there is a file of that name."""
    note("RUN", ctx)
    while not Path(gate).exists():
        await asyncio.sleep(0.005)
    note("END", ctx)
    return os.getpid()


@app.task
async def dies(ctx: Context, how: str, gate: str = "") -> None:
    """Takes its process with it, when there is a file of that name."""
    note("RUN", ctx)
    while gate and not Path(gate).exists():
        await asyncio.sleep(0.005)
    end_this_process(how)


@app.task
async def dies_each_time(ctx: Context, gate: str) -> None:
    """Takes its process with it when there is a file for this attempt."""
    note("RUN", ctx)
    while not Path(f"{gate}-{ctx.attempt}").exists():
        await asyncio.sleep(0.005)
    end_this_process("kill")


@app.task
async def dies_but_once(ctx: Context, how: str) -> int:
    """Takes its process with it in its first execution."""
    note("RUN", ctx)
    if ctx.attempt == 1:
        end_this_process(how)
    return os.getpid()


@app.task
async def blocks_the_loop(ctx: Context, seconds: float) -> str:
    """Nothing else runs in its process meanwhile."""
    note("RUN", ctx)
    threading.Event().wait(seconds)
    note("END", ctx)
    return "done"


@app.task
async def blocks_later(ctx: Context, gate: str, seconds: float) -> str:
    """The same, when there is a file of that name."""
    note("RUN", ctx)
    while not Path(gate).exists():
        await asyncio.sleep(0.005)
    threading.Event().wait(seconds)
    note("END", ctx)
    return "done"


@app.task
async def dies_twice_then_holds(ctx: Context, seconds: int) -> str:
    """Takes two processes with it, and holds the interpreter of the third."""
    note("RUN", ctx)
    if ctx.attempt < 3:
        end_this_process("kill")
    ctypes.PyDLL(None).sleep(seconds)
    note("END", ctx)
    return "done"


@app.task
async def holds_the_interpreter(ctx: Context, seconds: int) -> str:
    """No thread of its process runs meanwhile."""
    note("RUN", ctx)
    ctypes.PyDLL(None).sleep(seconds)
    note("END", ctx)
    return "done"


@app.task
def waits_in_a_thread(ctx: Context, seconds: float) -> str:
    """A sync handler that cannot be interrupted while it waits."""
    note("RUN", ctx)
    threading.Event().wait(seconds)
    note("END", ctx)
    return "done"


@app.task(timeout=0.3)
def deadlock(ctx: Context) -> None:
    """Waits in one call for a lock that nobody gives back."""
    note("RUN", ctx)
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


@app.task(timeout=0.3)
async def ignores_everything(ctx: Context) -> None:
    """Swallows each cancellation."""
    note("RUN", ctx)
    while True:
        try:
            await asyncio.sleep(1_000)
        except asyncio.CancelledError:
            continue


@app.task(timeout=0.3)
async def computes(ctx: Context) -> None:
    """Never comes back from one call of C code that holds the interpreter."""
    note("RUN", ctx)
    re.match(r"(a+)+$", "a" * 60 + "b")


@app.task
async def forks(ctx: Context) -> int:
    """Leaves a process behind that nobody waits for, and stays itself; only in its first execution."""
    note("RUN", ctx)
    if ctx.attempt > 1:
        return 0
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        if os.fork() == 0:
            os.write(write_end, f"{os.getpid()}\n".encode())
            while True:
                signal.pause()
        os._exit(0)
    os.wait()
    ledger.note("GRANDCHILD", ctx.job.id, ctx.fence, 0, os.read(read_end, 20).decode().strip())
    await asyncio.sleep(1_000)
    return 0


@app.task
async def leaks(ctx: Context, megabytes: int) -> int:
    """Keeps memory for ever."""
    note("RUN", ctx)
    hoard.append(bytearray(b"x") * (megabytes * 1_048_576))
    return os.getpid()


@app.task
async def takes_all_memory(ctx: Context) -> None:
    """Allocates far more than its process may have."""
    import resource

    note("RUN", ctx)
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (2**30, before[1]))
    try:
        bytearray(2**33)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@app.task
async def ruins_stdout(ctx: Context, how: str) -> int:
    """Closes its standard output, or floods it."""
    note("RUN", ctx)
    if how == "close":
        os.close(1)
    else:
        for _ in range(200):
            sys.stdout.write("x" * 100_000 + "\n")
    return os.getpid()
