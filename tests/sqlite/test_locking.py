from __future__ import annotations

import asyncio
import signal
import sqlite3
from pathlib import Path

import pytest

from mulligan.core.clock import ManualClock
from mulligan.core.errors import StoreUnavailable
from mulligan.stores.sqlite import SQLiteStore
from mulligan.stores.sqlite.filelock import WAITING, FileLock
from tests.builders import ask, claim, new_job
from tests.sqlite.children import child


async def test_locked_file_is_unavailable_and_comes_back(path: Path, clock: ManualClock) -> None:
    """While somebody else's transaction holds the file, writes fail as retryable and reads go on; afterwards all is well."""
    store = SQLiteStore(path, clock=clock, busy_timeout_s=0.05)
    await store.open()
    await store.insert([new_job()])
    foreign = sqlite3.connect(path, isolation_level=None)
    foreign.execute("BEGIN IMMEDIATE")
    job = new_job()
    with pytest.raises(StoreUnavailable, match="locked.*busy_timeout_s") as caught:
        await store.insert([job])
    assert caught.value.retryable
    assert (await store.stats()).queues[0].fresh_ready == 1
    foreign.execute("COMMIT")
    foreign.close()
    assert (await store.insert([job]))[0].created
    assert (await store.stats()).queues[0].fresh_ready == 2
    await store.close()


async def test_file_that_is_locked_at_open_is_unavailable(path: Path) -> None:
    """A new file that somebody else is just writing cannot be opened yet, but can be later."""
    foreign = sqlite3.connect(path, isolation_level=None)
    foreign.execute("BEGIN EXCLUSIVE")
    store = SQLiteStore(path, busy_timeout_s=0.05)
    with pytest.raises(StoreUnavailable, match="locked"):
        await store.open()
    foreign.execute("COMMIT")
    foreign.close()
    await store.open()
    await store.close()


async def test_short_lock_is_waited_for(store: SQLiteStore, path: Path) -> None:
    """A transaction of somebody else that ends in time is not noticed at all."""
    foreign = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    foreign.execute("BEGIN IMMEDIATE")
    writing = asyncio.create_task(store.insert([new_job()]))
    await asyncio.sleep(0)  # it has been handed to the writer, which now waits
    foreign.execute("COMMIT")
    assert (await writing)[0].created
    foreign.close()


async def test_idle_claim_takes_no_lock_and_writes_nothing(path: Path, clock: ManualClock) -> None:
    """Once a claim came back empty, the next ones only read: they do not even notice that another process holds the lock."""
    store = SQLiteStore(path, clock=clock, busy_timeout_s=0.05)
    await store.open()
    await store.insert([new_job(delay_s=100)])
    assert (await claim(store)).jobs == []
    before = Path(f"{path}-wal").read_bytes(), path.read_bytes()
    lock = FileLock(str(path))
    lock.acquire(0)
    for _ in range(3):
        answer = await claim(store)
        assert (answer.jobs, answer.next_due_us) == ([], clock.now_us() + 100_000_000)
    lock.release()
    lock.close()
    assert (Path(f"{path}-wal").read_bytes(), path.read_bytes()) == before
    clock.advance(100)
    assert len((await claim(store)).jobs) == 1
    await store.close()


HOLD = """
from mulligan.stores.sqlite.filelock import FileLock
lock = FileLock(sys.argv[1])
lock.acquire(1)
say("held")
wait()
"""


async def test_stopped_process_blocks_for_a_bounded_time(path: Path, clock: ManualClock) -> None:
    """A process that is stopped while it holds the lock makes others unavailable, not hang; when it is killed, all goes on."""
    store = SQLiteStore(path, clock=clock, busy_timeout_s=0.05)
    await store.open()
    with child(HOLD, path) as holder:
        assert holder.hear() == "held"
        holder.process.send_signal(signal.SIGSTOP)
        with pytest.raises(StoreUnavailable, match="jobs.db-lock"):
            await store.insert([new_job()])
        holder.end()
        assert (await store.insert([new_job()]))[0].created
    await store.close()


async def test_close_does_not_hang_on_a_lock(path: Path, clock: ManualClock) -> None:
    """A store can be closed while another process holds the lock."""
    store = SQLiteStore(path, clock=clock, busy_timeout_s=0.05)
    await store.open()
    with child(HOLD, path) as holder:
        assert holder.hear() == "held"
        await store.close()


FORK_AND_DIE = """
import os
from mulligan.stores.sqlite.filelock import FileLock
lock = FileLock(sys.argv[1])
lock.acquire(1)
if os.fork() == 0:
    say("child lives")
    wait()
    os._exit(0)
os._exit(1)
"""


def test_forked_child_does_not_keep_the_lock_of_its_dead_parent(path: Path) -> None:
    """A lock ends with the process that took it, also if a child of it lives on."""
    with child(FORK_AND_DIE, path) as parent:
        assert parent.hear() == "child lives"
        parent.process.wait()
        lock = FileLock(str(path))
        lock.acquire(5)
        lock.close()
        parent.go_on()


def test_two_locks_of_one_process_exclude_each_other(path: Path) -> None:
    """Two stores on one file in one process are like two processes."""
    one, other = FileLock(str(path)), FileLock(str(path))
    one.acquire(0)
    with pytest.raises(StoreUnavailable, match="another process"):
        other.acquire(0.01)
    assert one.flags[WAITING] == 1  # whoever holds it knows that somebody waits
    one.release()
    other.acquire(0)
    assert one.flags[WAITING] == 0
    other.close()
    one.acquire(0)
    one.close()


async def test_deleted_lock_file_is_followed(path: Path, clock: ManualClock) -> None:
    """If somebody deletes the lock file, stores that are open soon agree on the new one again, and wake-ups with them."""
    stores = [SQLiteStore(path, clock=clock, busy_timeout_s=0.05) for _ in range(2)]
    for store in stores:
        await store.open()
    Path(f"{path}-lock").unlink()
    for store in stores:
        for _ in range(20):
            await store.insert([new_job()])
    lock = FileLock(str(path))
    lock.acquire(0)
    for store in stores:
        with pytest.raises(StoreUnavailable, match="jobs.db-lock"):
            await store.insert([new_job()])
    lock.close()
    ear = stores[0].listen()
    await stores[1].insert([new_job()])
    assert await ear.wait(20)
    for store in stores:
        await store.close()


WRITE = """
async def main():
    store = SQLiteStore(sys.argv[1], durability="normal")
    await store.open()
    say("ready")
    wait()
    mine = 0
    while True:
        jobs = (await store.claim(builders.fresh_id(), sys.argv[2], [builders.ask()], 1, 60_000_000)).jobs
        if not jobs:
            break
        mine += len(jobs)
        await store.settle([builders.done(job) for job in jobs])
    await store.close()
    return mine
say(asyncio.run(main()))
"""


async def test_two_processes_share_evenly(path: Path) -> None:
    """Two processes that drain one file as fast as they can each get a fair part of it, and no job twice."""
    store = SQLiteStore(path)
    await store.open()
    await store.insert([new_job() for _ in range(1_000)])
    with child(WRITE, path, "a") as a, child(WRITE, path, "b") as b:
        assert [a.hear(), b.hear()] == ["ready", "ready"]
        a.go_on()
        b.go_on()
        shares = [a.hear(), b.hear()]
    assert sum(shares) == 1_000
    assert min(shares) >= 250, shares
    [queue] = (await store.stats()).queues
    assert (queue.done, queue.processing, queue.fresh_ready) == (1_000, 0, 0)
    await store.close()


async def test_repeated_claim_is_known_to_a_restarted_process(path: Path, clock: ManualClock) -> None:
    """Which claim ids took jobs is in the file: a repeat after a restart returns the same jobs and takes no more."""
    store = SQLiteStore(path, clock=clock)
    await store.open()
    await store.insert([new_job() for _ in range(5)])
    first = await claim(store, ask(), total=2, claim_id="claim-1")
    await store.close()
    store = SQLiteStore(path, clock=clock)
    await store.open()
    again = await claim(store, ask(), total=2, claim_id="claim-1")
    assert again.jobs == first.jobs
    assert len((await claim(store, ask(), claim_id="claim-2")).jobs) == 3
    await store.close()
