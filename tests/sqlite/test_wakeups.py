from __future__ import annotations

import asyncio
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mulligan.core.clock import ManualClock
from mulligan.core.errors import IllegalMove
from mulligan.stores.sqlite import SQLiteStore
from mulligan.stores.sqlite.filelock import ARMED, FileLock
from mulligan.stores.sqlite.wake import Wakeups
from tests.builders import claim, new_job, retry
from tests.sqlite.children import child

FOREVER_S = 60  # far beyond what a hint takes; a test that waits so long has failed

SLEEPER = """
async def main():
    store = SQLiteStore(sys.argv[1])
    await store.open()
    ear = store.listen()
    say("asleep")
    while True:
        heard = await ear.wait(60)
        jobs = (await store.claim(builders.fresh_id(), "w", [builders.ask(), builders.ask(lane="retry")], 10, 60_000_000)).jobs
        say([heard, len(jobs)])

asyncio.run(main())
"""


async def heard(process: object) -> object:
    """What a child says next, without blocking this loop."""
    return await asyncio.wait_for(asyncio.get_running_loop().run_in_executor(None, process.hear), FOREVER_S / 3)  # type: ignore[attr-defined]


async def test_sleeper_in_another_process_is_woken(path: Path) -> None:
    """An idle process with a poll interval of a minute claims a new job at once, again and again, because it is told (R05)."""
    store = SQLiteStore(path)
    await store.open()
    with child(SLEEPER, path) as sleeper:
        assert await heard(sleeper) == "asleep"
        for count in (1, 2, 1):
            await store.insert([new_job() for _ in range(count)])
            assert await heard(sleeper) == [True, count]
        await store.set_queue("q", paused=True)
        await store.insert([new_job()])
        assert await heard(sleeper) == [True, 0]
        await store.set_queue("q", paused=False)
        assert await heard(sleeper) == [True, 1]
    await store.close()


async def test_hint_is_not_lost_before_the_wait(path: Path, store: SQLiteStore) -> None:
    """A hint from another store object that comes while nobody waits ends the next wait at once; then it is used up."""
    other = SQLiteStore(path)
    await other.open()
    ear = store.listen()
    await other.insert([new_job()])
    assert await ear.wait(FOREVER_S)
    assert not await ear.wait(0)
    await other.insert([new_job()])
    await other.insert([new_job()])
    assert await ear.wait(FOREVER_S)
    assert not await ear.wait(0.01)
    await other.close()


async def test_settling_to_pending_wakes(path: Path, store: SQLiteStore) -> None:
    """A retry that is due at once wakes a sleeper of another store like a new job does."""
    await store.insert([new_job()])
    [job] = (await claim(store)).jobs
    other = SQLiteStore(path)
    await other.open()
    ear = other.listen()
    await store.settle([retry(job)])
    assert await ear.wait(FOREVER_S)
    await other.close()


async def test_announcing_to_the_busy_costs_no_look(path: Path, store: SQLiteStore) -> None:
    """After one hint, nothing more is sent until a sleeper has taken it in: a burst of inserts is one datagram."""
    other = SQLiteStore(path)
    await other.open()
    ear = other.listen()
    flags = store._session.writer.lock.flags  # type: ignore[union-attr]
    assert flags[ARMED] == 1
    for _ in range(5):
        await store.insert([new_job()])
        assert flags[ARMED] == 0
    assert ear._ear is not None
    assert ear._ear.recv(16)
    with pytest.raises(BlockingIOError):
        ear._ear.recv(16)
    await other.close()


async def test_every_sleeper_hears(path: Path, store: SQLiteStore) -> None:
    """Ears of this process and of others are all told, on whatever loop they sleep."""
    other = SQLiteStore(path)
    await other.open()
    ears = [store.listen(), store.listen(), other.listen()]
    waits = [asyncio.ensure_future(ear.wait(FOREVER_S)) for ear in ears]
    elsewhere = store.listen()
    thread = asyncio.get_running_loop().run_in_executor(None, asyncio.run, elsewhere.wait(FOREVER_S))
    await asyncio.sleep(0)
    store.announce()
    assert await asyncio.gather(*waits, thread) == [True] * 4
    await other.close()


async def test_socket_of_a_dead_process_is_cleared_away(path: Path, store: SQLiteStore) -> None:
    """A process that was killed leaves its socket behind; the next hint removes it."""
    folder = store._session.wakeups._folder  # type: ignore[union-attr]
    with child(SLEEPER, path) as sleeper:
        assert await heard(sleeper) == "asleep"
        assert len(os.listdir(folder)) == 1
    assert len(os.listdir(folder)) == 1
    store.announce()
    assert os.listdir(folder) == []


async def test_nothing_is_left_after_closing(path: Path) -> None:
    """Closing the last store removes its sockets and their folder, ends running waits, and later waits end at once."""
    store = SQLiteStore(path)
    await store.open()
    folder = store._session.wakeups._folder  # type: ignore[union-attr]
    ear = store.listen()
    waiting = asyncio.ensure_future(ear.wait(FOREVER_S))
    await asyncio.sleep(0)
    assert len(os.listdir(folder)) == 1
    await store.close()
    assert not await waiting
    assert not await ear.wait(FOREVER_S)
    assert not folder.exists()
    with pytest.raises(IllegalMove, match="open"):
        store.listen()
    store.announce()
    ear.close()


async def test_cancelled_wait_leaves_the_ear_usable(store: SQLiteStore) -> None:
    """Cancelling a wait watches the socket no longer, and the next wait works."""
    ear = store.listen()
    waiting = asyncio.ensure_future(ear.wait(FOREVER_S))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    store.announce()
    assert await ear.wait(FOREVER_S)


@pytest.fixture
def base() -> Iterator[Path]:
    """A folder whose path is short enough for sockets, in place of the one that all programs share."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def lock(path: Path) -> Iterator[FileLock]:
    """The file lock of a database, for its flags."""
    lock = FileLock(str(path))
    yield lock
    lock.close()


async def test_folder_of_others_is_not_used(base: Path, path: Path, lock: FileLock) -> None:
    """If the folder for sockets is open to others, or not a folder, there are no hints between processes, but still inside this one."""
    folder = base / f"mulligan-{os.geteuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    wakeups = Wakeups(str(path), lock, base)
    assert "this user alone" in wakeups.trouble
    ear = wakeups.listen()
    assert ear.name == ""
    wakeups.announce()
    assert await ear.wait(FOREVER_S)
    assert not await ear.wait(0)
    wakeups.close()


async def test_link_in_place_of_the_folder_is_not_followed(base: Path, path: Path, lock: FileLock) -> None:
    """A link that somebody laid where our folder would be is not trusted."""
    (base / "elsewhere").mkdir(mode=0o700)
    (base / f"mulligan-{os.geteuid()}").symlink_to(base / "elsewhere")
    wakeups = Wakeups(str(path), lock, base)
    assert "this user alone" in wakeups.trouble
    wakeups.close()


async def test_path_that_is_too_long_means_polling(tmp_path: Path, path: Path, lock: FileLock) -> None:
    """A folder whose path no socket can have turns the hints off, and says so."""
    base = tmp_path / ("x" * 80)
    base.mkdir()
    wakeups = Wakeups(str(path), lock, base)
    assert "too long" in wakeups.trouble
    wakeups.close()


async def test_folder_that_cannot_be_made_means_polling(path: Path, lock: FileLock) -> None:
    """Where no folder can be made, the store opens all the same."""
    wakeups = Wakeups(str(path), lock, Path("/dev/null"))
    assert "cannot be made" in wakeups.trouble
    wakeups.close()


async def test_full_ear_does_not_hold_up_the_sender(path: Path, store: SQLiteStore, clock: ManualClock) -> None:
    """Hints to somebody who never listens are dropped, not waited for."""
    wakeups = store._session.wakeups  # type: ignore[union-attr]
    deaf = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    deaf.bind(str(wakeups._folder / "deaf"))
    for _ in range(2_000):
        wakeups._shared.flags[ARMED] = 1
        store.announce()
    deaf.close()
    (wakeups._folder / "deaf").unlink()


async def test_folder_that_vanishes_means_polling(base: Path, path: Path, lock: FileLock) -> None:
    """If the folder turns into something else while the store is open, listening goes on without hints of other processes."""
    wakeups = Wakeups(str(path), lock, base)
    assert wakeups.trouble == ""
    wakeups._folder.rmdir()
    wakeups._folder.touch()
    ear = wakeups.listen()
    assert "no socket can be made" in wakeups.trouble
    wakeups.announce()
    assert await ear.wait(FOREVER_S)
    wakeups.close()


class LoopWithoutSockets(asyncio.SelectorEventLoop):
    """A loop that cannot watch descriptors, as some other implementations."""

    def add_reader(self, *args: object) -> None:
        raise NotImplementedError


def test_loop_that_cannot_watch_sockets_gets_the_hints_of_its_process(path: Path) -> None:
    """On such a loop a wait still ends with a hint from a thread of the same process, and by its time."""

    async def main() -> tuple[bool, bool]:
        store = SQLiteStore(path)
        await store.open()
        ear = store.listen()
        waiting = asyncio.ensure_future(ear.wait(FOREVER_S))
        await asyncio.sleep(0)
        await store.insert([new_job()])
        answers = await waiting, await ear.wait(0)
        await store.close()
        return answers

    # The loop's own pipe needs a reader, so the class is changed after it is made.
    loop = asyncio.SelectorEventLoop()
    loop.__class__ = LoopWithoutSockets
    try:
        assert loop.run_until_complete(main()) == (True, False)
    finally:
        loop.close()


async def test_sleeper_whose_loop_is_gone_does_no_harm(store: SQLiteStore) -> None:
    """A loop that was closed in the middle of a wait is passed over by the next hint."""
    ear = store.listen()

    def sleep_and_abandon() -> None:
        loop = asyncio.new_event_loop()
        task = loop.create_task(ear.wait(FOREVER_S))
        loop.run_until_complete(asyncio.sleep(0))
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        loop.close()

    await asyncio.get_running_loop().run_in_executor(None, sleep_and_abandon)
    store.announce()
    assert await ear.wait(FOREVER_S)


def test_one_that_leaves_does_not_take_the_folder_from_one_that_comes(
    base: Path, path: Path, lock: FileLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last to leave removes the folder just after the next one has made it, twice when it looks and twice when it binds."""
    make, leaving = Wakeups._make_folder, 2

    def made_and_removed(wakeups: Wakeups) -> None:
        nonlocal leaving
        make(wakeups)
        if leaving:
            leaving -= 1
            wakeups._folder.rmdir()

    monkeypatch.setattr(Wakeups, "_make_folder", made_and_removed)
    wakeups = Wakeups(str(path), lock, base)
    assert (wakeups.trouble, leaving) == ("", 0)
    leaving = 2
    ear = wakeups.listen()
    assert (wakeups.trouble, leaving) == ("", 0)
    assert ear.name
    wakeups.close()
