"""Writes by threads that block: by themselves while they are alone, through the writing thread otherwise; interrupted anywhere."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from mulligan import Mulligan
from mulligan.core.errors import IllegalMove, StoreRejected, StoreUnavailable
from mulligan.stores.sqlite import SQLiteStore, insert
from mulligan.stores.sqlite.filelock import FileLock
from mulligan.stores.sqlite.hop import Transaction
from mulligan.stores.sqlite.writer import Writer
from mulligan.sync import SyncHandle
from tests.builders import new_job
from tests.interrupting import Interruption, interrupted

PUT = "INSERT INTO mulligan_queues VALUES (?, 0, '', '', 0)"
EVENTS_MAX = 2_000


def writer_of(store: SQLiteStore) -> Writer:
    assert store._session is not None
    return store._session.writer


def at_rest(store: SQLiteStore) -> Writer:
    """The writer, when its thread has done what it was handed: it answers a moment before it lets go of the connection."""
    writer = writer_of(store)
    with writer._turn:
        return writer


def put(name: str) -> Callable[[Transaction], int]:
    """Work that writes one row under this name."""
    return lambda transaction: transaction.run(PUT, (name,))


class Gate:
    """Work that keeps the connection busy until it is opened."""

    def __init__(self) -> None:
        self._go_on = threading.Event()
        self._entered = threading.Event()
        self.open = self._go_on.set

    def hold(self, _: Transaction) -> None:
        self._entered.set()
        assert self._go_on.wait(20)

    def entered(self) -> None:
        assert self._entered.wait(20)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(20) as threads:
        yield threads


async def names_of(store: SQLiteStore) -> list[str]:
    return [state.queue for state in await store.queue_states()]


async def waiting(writer: Writer, many: int) -> None:
    """Returns when so much work waits in the writing thread's line."""
    while writer._inbox.qsize() < many:
        await asyncio.sleep(0)


async def test_who_is_alone_writes_by_himself(store: SQLiteStore, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection is used on the caller's thread, and the writing thread is handed nothing."""
    writer = at_rest(store)
    with monkeypatch.context() as patch:
        patch.setattr(writer, "_hand_over", lambda item: pytest.fail("it was handed over"))
        assert threads.submit(lambda: writer.run_now(lambda _: threading.get_ident()) == threading.get_ident()).result(20)
        assert threads.submit(store.insert_now, [new_job()]).result(20)[0].created
    assert await store._write(lambda _: threading.get_ident()) == writer._thread.ident


async def test_those_who_come_meanwhile_are_written_together(store: SQLiteStore, threads: ThreadPoolExecutor) -> None:
    """While one thread writes by itself, the inserts of fifteen others gather, and are committed by one transaction."""
    writer, gate = at_rest(store), Gate()
    first = threads.submit(writer.run_now, gate.hold)
    gate.entered()
    before = writer._groups
    others = [threads.submit(store.insert_now, [new_job()]) for _ in range(15)]
    await waiting(writer, 14)  # the writing thread holds the first of them, and waits for its turn
    gate.open()
    assert first.result(20) is None
    assert all(other.result(20)[0].created for other in others)
    assert writer._groups - before <= 2
    assert (await store.stats()).queues[0].fresh_ready == 15


async def test_who_writes_by_himself_makes_way(store: SQLiteStore, threads: ThreadPoolExecutor) -> None:
    """Where others wait already, a caller goes with them instead of before them: the writing thread always gets its turn."""
    writer, handed = at_rest(store), []
    hand_over = writer._hand_over

    def noted(item: object) -> None:
        handed.append(item)
        hand_over(item)  # type: ignore[arg-type]

    writer._hand_over = noted  # type: ignore[method-assign,assignment]
    writer._is_awaited = True
    assert threads.submit(writer.run_now, put("a")).result(20) == 1
    assert len(handed) == 1
    at_rest(store)
    assert threads.submit(writer.run_now, put("b")).result(20) == 1
    assert len(handed) == 1


async def test_what_fails_fails_for_its_caller_alone(store: SQLiteStore, threads: ThreadPoolExecutor) -> None:
    """Alone or in a group, the driver's errors are translated, a bug comes as it is, and neither leaves anything behind."""
    writer, gate = at_rest(store), Gate()
    await store._write(put("a"))

    def half(transaction: Transaction) -> None:
        transaction.run(PUT, ("half",))
        transaction.run(PUT, ("a",))

    def bug(transaction: Transaction) -> None:
        transaction.run(PUT, ("bug",))
        raise ZeroDivisionError

    assert isinstance(threads.submit(writer.run_now, half).exception(20), StoreRejected)
    assert isinstance(threads.submit(writer.run_now, bug).exception(20), ZeroDivisionError)
    assert await names_of(store) == ["a"]
    first = threads.submit(writer.run_now, gate.hold)
    gate.entered()
    others = [threads.submit(writer.run_now, work) for work in (half, put("b"), bug, put("c"))]
    await waiting(writer, 3)
    gate.open()
    assert [type(other.exception(20)) for other in others] == [StoreRejected, type(None), ZeroDivisionError, type(None)]
    assert first.exception(20) is None
    assert await names_of(store) == ["a", "b", "c"]


async def test_a_locked_file_is_unavailable_and_comes_back(path: Path, threads: ThreadPoolExecutor) -> None:
    """A transaction of somebody else, or another process with the file lock, makes it retryable; afterwards all is well."""
    store = SQLiteStore(path, busy_timeout_s=0.05)
    await store.open()
    foreign = sqlite3.connect(path, isolation_level=None)
    foreign.execute("BEGIN IMMEDIATE")
    job = new_job()
    problem = threads.submit(store.insert_now, [job]).exception(20)
    assert isinstance(problem, StoreUnavailable)
    assert "busy_timeout_s" in str(problem)
    foreign.execute("ROLLBACK")
    foreign.close()
    lock = FileLock(str(path))
    lock.acquire(1)
    problem = threads.submit(store.insert_now, [job]).exception(20)
    assert isinstance(problem, StoreUnavailable)
    assert "another process" in str(problem)
    lock.release()
    assert threads.submit(store.insert_now, [job]).result(20)[0].created
    os.rename(path, f"{path}.gone")
    assert "deleted" in str(threads.submit(store.insert_now, [new_job()]).exception(20))
    os.rename(f"{path}.gone", path)
    assert threads.submit(store.insert_now, [new_job()]).result(20)[0].created
    lock.close()
    await store.close()


async def test_closing_finishes_what_was_handed_over(store: SQLiteStore, threads: ThreadPoolExecutor) -> None:
    """A close waits for a thread that writes and for those behind it; who comes later is refused."""
    writer, gate = at_rest(store), Gate()
    first = threads.submit(writer.run_now, gate.hold)
    gate.entered()
    others = [threads.submit(store.insert_now, [new_job()]) for _ in range(5)]
    await waiting(writer, 4)
    closing = asyncio.create_task(store.close())
    await waiting(writer, 5)
    assert not closing.done()
    gate.open()
    await closing
    assert first.exception(20) is None
    assert all(other.result(20)[0].created for other in others)
    assert isinstance(threads.submit(writer.run_now, put("a")).exception(20), IllegalMove)
    await store.open()
    assert (await store.stats()).queues[0].fresh_ready == 5


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # as the end of a generator swallows what is raised there
async def test_an_interrupted_write_leaves_nothing_half_done(store: SQLiteStore, path: Path, threads: ThreadPoolExecutor) -> None:
    """Wherever Ctrl-C strikes, no transaction stays open and no lock taken: the job is there or not, and the next write goes on."""
    writer, foreign = at_rest(store), FileLock(str(path))
    threads.submit(store.insert_now, [new_job()]).result(20)  # what is remembered of a statement saves steps
    jobs = []
    for after in range(EVENTS_MAX):
        job = new_job()
        if not threads.submit(interrupted, partial(store.insert_now, [job]), after).result(20):
            break
        jobs.append(job.id)
        assert writer.connection is not None
        assert not writer.connection.in_transaction
        assert writer._turn.acquire(blocking=False), f"the turn is taken for good after step {after}"
        writer._turn.release()
        foreign.acquire(0)
        foreign.release()
    assert 50 < len(jobs) < EVENTS_MAX
    assert threads.submit(store.insert_now, [new_job()]).result(20)[0].created
    stored = sum(found is not None for found in await store.get(jobs))
    assert 0 < stored < len(jobs)
    assert (await store.stats()).queues[0].fresh_ready == stored + 3
    foreign.close()


async def test_who_is_interrupted_while_he_waits_holds_up_nobody(store: SQLiteStore, threads: ThreadPoolExecutor) -> None:
    """Wherever Ctrl-C strikes a thread whose write was handed over, the writing thread goes on: it waits for nobody whom it answers."""
    writer = at_rest(store)
    for after in range(EVENTS_MAX):
        gate = Gate()
        first = threads.submit(writer.run_now, gate.hold)
        gate.entered()
        caller = threads.submit(interrupted, partial(store.insert_now, [new_job()]), after)
        while not (writer._is_awaited or caller.done()):
            await asyncio.sleep(0)
        gate.open()
        is_interrupted = await asyncio.wait_for(asyncio.wrap_future(caller), 20)
        assert first.result(20) is None
        assert await asyncio.wait_for(store._write(lambda _: "went on"), 5) == "went on", f"after step {after}"
        at_rest(store)
        if not is_interrupted:
            break
    assert 10 < after < EVENTS_MAX


async def test_others_are_written_when_the_one_before_them_is_interrupted(
    store: SQLiteStore, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What gathered behind a thread whose write is interrupted is committed all the same, and what it wrote is not."""
    writer, gate = at_rest(store), Gate()

    def interrupted(transaction: Transaction) -> None:
        transaction.run(PUT, ("interrupted",))
        gate.hold(transaction)
        raise Interruption

    first = threads.submit(writer.run_now, interrupted)
    gate.entered()
    others = [threads.submit(writer.run_now, put(name)) for name in "abc"]
    await waiting(writer, 2)
    gate.open()
    assert isinstance(first.exception(20), Interruption)
    assert [other.result(20) for other in others] == [1, 1, 1]
    assert await names_of(store) == ["a", "b", "c"]
    monkeypatch.setattr(insert, "insert", lambda transaction, jobs: interrupted(transaction))
    assert isinstance(threads.submit(store.insert_now, [new_job()]).exception(20), Interruption)
    assert await names_of(store) == ["a", "b", "c"]


async def test_a_destructor_may_not_write_into_a_group(store: SQLiteStore) -> None:
    """One that runs on the writing thread, as any thread may have to, is told so; what is being written there is not touched."""
    first, inner, last = new_job(), new_job(), new_job()
    told = []

    class Enqueues:
        def __del__(self) -> None:
            try:
                store.insert_now([inner])
            except IllegalMove as problem:
                told.append(str(problem))

    def work(transaction: Transaction) -> None:
        insert.insert(transaction, [first])
        Enqueues()
        insert.insert(transaction, [last])

    await asyncio.wait_for(store._write(work), 20)
    assert [found is not None for found in await store.get([first.id, inner.id, last.id])] == [True, False, True]
    assert len(told) == 1
    assert "destructor" in told[0]


def test_a_signal_handler_may_not_write_into_a_write(path: Path) -> None:
    """One that enqueues while it interrupts an insert of its own thread is told so, instead of waiting for itself for ever."""
    store = SQLiteStore(path)
    asyncio.run(store.open())
    writer, heard = at_rest(store), []

    def handle(*_: object) -> None:
        try:
            store.insert_now([new_job()])
        except IllegalMove as problem:
            heard.append(str(problem))

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        writer.run_now(lambda transaction: (transaction.run(PUT, ("a",)), signal.raise_signal(signal.SIGUSR1)))
        signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(heard) == 1
    assert "signal handler" in heard[0]

    async def found() -> tuple[list[str], int]:
        return await names_of(store), (await store.stats()).queues[1].fresh_ready

    assert asyncio.run(found()) == (["a"], 1)
    asyncio.run(store.close())


def test_a_signal_handler_may_look_but_not_wait_for_its_own_thread(path: Path) -> None:
    """One that interrupts an enqueue of its own thread may read; a cancel and a close are refused, instead of waiting for ever."""
    app = Mulligan(f"sqlite:///{path}")
    app.declare("work")
    first = app.sync.enqueue("work")
    assert isinstance(first, SyncHandle)
    assert isinstance(app.store, SQLiteStore)
    refused, seen = [], []

    def handle(*_: object) -> None:
        for call in (partial(app.sync.cancel, first.id), app.sync.close, app.sync.status):
            try:
                call()
            except IllegalMove as problem:
                refused.append(str(problem))
        seen.append(first.id)

    def look(*_: object) -> None:
        seen.append(app.sync.get(first.id).id)

    writer = at_rest(app.store)
    before = signal.getsignal(signal.SIGUSR1)
    try:
        for handler in (look, handle):
            signal.signal(signal.SIGUSR1, handler)
            writer.run_now(lambda transaction: (transaction.run(PUT, (str(len(seen)),)), signal.raise_signal(signal.SIGUSR1)))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == [first.id] * 2
    assert ["signal handler" in text for text in refused] == [True] * 3  # after the close it would have to be opened again
    assert app.sync.cancel(first.id) == "cancelled"
    app.sync.close()
    assert writer.connection is None
