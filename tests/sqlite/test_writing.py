from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from mulligan.core.change import Held
from mulligan.core.errors import BadPayload, IllegalMove, StoreRejected, StoreUnavailable
from mulligan.stores.sqlite import SQLiteStore
from mulligan.stores.sqlite.hop import Transaction
from mulligan.stores.sqlite.writer import GROUP_MAX
from tests.builders import ask, claim, done, failed, get, new_job, put_and_claim, requeue
from tests.sqlite.children import child
from tests.sqlite.tracing import texts_of

PUT = "INSERT INTO mulligan_queues VALUES (?, 0, '', '', 0)"


Work = Callable[[Transaction], object]


def put(name: str) -> Work:
    """Work that writes one row under this name."""
    return lambda transaction: transaction.run(PUT, (name,))


class Gate:
    """Work that keeps the writer busy until it is opened, so that what comes meanwhile forms one group."""

    def __init__(self, store: SQLiteStore) -> None:
        self._go_on = threading.Event()
        self._entered = threading.Event()
        self.done = asyncio.ensure_future(store._write(self._hold))

    def _hold(self, transaction: Transaction) -> None:
        self._entered.set()
        assert self._go_on.wait(20)

    async def entered(self) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self._entered.wait, 20)

    def open(self) -> None:
        self._go_on.set()


async def in_one_group(store: SQLiteStore, *works: Work) -> list[object]:
    """The answers, or errors, of works that were committed together."""
    gate = Gate(store)
    await gate.entered()
    before = store._session.writer._groups  # type: ignore[union-attr]
    futures = [asyncio.ensure_future(store._write(work)) for work in works]
    await asyncio.sleep(0)
    gate.open()
    answers = await asyncio.gather(*futures, return_exceptions=True)
    await gate.done
    assert store._session.writer._groups - before == 1  # type: ignore[union-attr]
    return list(answers)


async def queues(store: SQLiteStore) -> list[str]:
    return [state.queue for state in await store.queue_states()]


async def test_one_that_fails_does_not_disturb_the_others(store: SQLiteStore) -> None:
    """Of a group that is committed together, the one that breaks a constraint is refused and leaves nothing; the others are stored."""

    def half(transaction: Transaction) -> None:
        transaction.run(PUT, ("half",))
        transaction.run(PUT, ("a",))

    answers = await in_one_group(store, put("a"), half, put("b"), put("c"))
    assert [type(answer) for answer in answers] == [int, StoreRejected, int, int]
    assert await queues(store) == ["a", "b", "c"]


async def test_own_errors_pass_through_a_group_unchanged(store: SQLiteStore) -> None:
    """An error of ours, or a bug, reaches the one who caused it as it is, and nobody else."""

    def bad(transaction: Transaction) -> None:
        raise BadPayload("no")

    def bug(transaction: Transaction) -> None:
        raise ZeroDivisionError

    answers = await in_one_group(store, put("a"), bad, bug, put("b"))
    assert [type(answer) for answer in answers] == [int, BadPayload, ZeroDivisionError, int]
    assert await queues(store) == ["a", "b"]


async def test_commit_that_fails_is_acknowledged_to_nobody(store: SQLiteStore) -> None:
    """If the commit itself fails, everybody in the group is told so, nothing is stored, and the next group works."""
    await store._write(lambda t: t.run("CREATE TABLE parent (id INTEGER PRIMARY KEY)"))
    await store._write(lambda t: t.run("CREATE TABLE child (p INTEGER REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)"))

    def orphan(transaction: Transaction) -> int:
        return transaction.run("INSERT INTO child VALUES (7)")  # refused by SQLite at the commit, not here

    answers = await in_one_group(store, put("a"), orphan, put("b"))
    assert [type(answer) for answer in answers] == [StoreRejected] * 3
    assert await queues(store) == []
    assert await in_one_group(store, put("a"), put("b")) == [1, 1]
    assert await queues(store) == ["a", "b"]


async def test_many_writes_need_few_commits(store: SQLiteStore) -> None:
    """What gathers while the writer is busy is committed together: as many transactions as groups are needed, and no more."""
    writer = store._session.writer  # type: ignore[union-attr]
    gate = Gate(store)
    await gate.entered()
    before = writer._groups
    inserts = [asyncio.create_task(store.insert([new_job()])) for _ in range(100)]
    pauses = [asyncio.create_task(store.set_queue(f"queue-{number}", paused=False)) for number in range(2 * GROUP_MAX)]
    while writer._inbox.qsize() < 2 * GROUP_MAX:
        await asyncio.sleep(0)
    gate.open()
    assert all(answer[0].created for answer in await asyncio.gather(*inserts))
    await asyncio.gather(*pauses)
    await gate.done
    assert writer._groups - before <= 4
    assert (await store.stats()).queues[0].fresh_ready == 100


async def test_insert_that_cannot_be_stored_fails_alone(store: SQLiteStore) -> None:
    """Among enqueues that gathered, the one with a lone surrogate is refused, and the others are stored."""
    jobs = [new_job(), new_job(), new_job(payload='"\ud800"'), new_job(), new_job(delay_s=0, eta_us=2**70)]
    answers = await asyncio.gather(*(store.insert([job]) for job in jobs), return_exceptions=True)
    assert [type(answer) for answer in answers] == [list, list, StoreRejected, list, StoreRejected]
    found = await store.get([job.id for job in jobs])
    assert [job is not None for job in found] == [True, True, False, True, False]


async def test_inserts_that_gather_fail_together_when_the_file_is_locked(path: Path) -> None:
    """All of them are told that the store is unavailable, after one wait and not one for each; repeated, all are stored."""
    store = SQLiteStore(path, busy_timeout_s=0.05)
    await store.open()
    foreign = sqlite3.connect(path, isolation_level=None)
    foreign.execute("BEGIN IMMEDIATE")
    jobs = [new_job() for _ in range(20)]
    groups = store._session.writer._groups  # type: ignore[union-attr]
    answers = await asyncio.gather(*(store.insert([job]) for job in jobs), return_exceptions=True)
    assert {type(answer) for answer in answers} == {StoreUnavailable}
    assert store._session.writer._groups - groups == 2  # type: ignore[union-attr]
    foreign.execute("ROLLBACK")
    foreign.close()
    await asyncio.gather(*(store.insert([job]) for job in jobs))
    assert (await store.stats()).queues[0].fresh_ready == 20
    await store.close()


async def test_work_that_waits_at_the_close_is_done_first(store: SQLiteStore) -> None:
    """Closing finishes what was handed over before it, and refuses what comes after."""
    gate = Gate(store)
    await gate.entered()
    before = asyncio.ensure_future(store.set_queue("before", paused=True))
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(store.close())
    await asyncio.sleep(0)
    with pytest.raises(IllegalMove, match="open"):
        await store.set_queue("after", paused=True)
    gate.open()
    assert (await before).paused
    await closing
    await gate.done
    await store.open()
    assert await queues(store) == ["before"]


async def test_requeue_after_failure_in_one_batch(store: SQLiteStore) -> None:
    """Changes of the same job in one batch are applied in their order, also when they give up and take a unique key."""
    held = await put_and_claim(store, unique_key="k")
    gone = failed(held)
    back = requeue(held)
    again = requeue(held, generation=3)
    answers = await store.settle([gone, back, again])
    assert [(answer.applied, answer.status) for answer in answers] == [(True, "failed"), (True, "pending"), (False, "pending")]
    stored = await get(store, held.id)
    assert (stored.generation, [record.outcome for record in stored.history]) == (2, ["failure", "requeue"])


async def test_one_id_twice_in_a_batch_is_taken_in_order(store: SQLiteStore) -> None:
    """If the first of two jobs with one id finds its key taken and the second has none, only the second is stored."""
    owner = new_job(unique_key="k")
    job = new_job()
    await store.insert([owner])
    answers = await store.insert([msgspec.structs.replace(job, unique_key="k"), job, job])
    assert [(answer.id, answer.created) for answer in answers] == [(owner.id, False), (job.id, True), (job.id, True)]


async def test_cancelled_insert_does_not_disturb_those_beside_it(store: SQLiteStore) -> None:
    """A task that is cancelled while its insert waits takes nobody with it."""
    gate = Gate(store)
    await gate.entered()
    jobs = [new_job() for _ in range(4)]
    tasks = [asyncio.ensure_future(store.insert([job])) for job in jobs]
    await asyncio.sleep(0)
    tasks[0].cancel()  # the one under way
    tasks[2].cancel()  # one of those that gather
    gate.open()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(answer, list) for answer in answers] == [False, True, False, True]
    found = await store.get([job.id for job in jobs])
    assert [found[1], found[3]] != [None, None]
    assert found[2] is None
    assert (await store.insert([jobs[0]]))[0].created
    await gate.done


async def test_store_serves_several_loops_at_once(store: SQLiteStore) -> None:
    """Threads with event loops of their own use the same open store."""

    async def work() -> int:
        for _ in range(20):
            await asyncio.gather(store.insert([new_job()]), store.stats())
        return 20

    loop = asyncio.get_running_loop()
    answers = await asyncio.gather(*(loop.run_in_executor(None, asyncio.run, work()) for _ in range(4)), work())
    assert sum(answers) == 100
    assert (await store.stats()).queues[0].fresh_ready == 100


async def test_reading_connection_cannot_write(store: SQLiteStore) -> None:
    """SQLite itself refuses a write on the connection that is for reading."""
    with pytest.raises(StoreUnavailable, match="readonly"):
        await store._read(put("a"))


async def test_no_write_begins_as_a_read(store: SQLiteStore) -> None:
    """A transaction that reads first and writes then fails at once where another wrote in between, however long it may wait (E28)."""

    async def write(store: SQLiteStore) -> None:
        job = await put_and_claim(store)
        await store.settle([done(job)])

    begun = [text for text in await texts_of(store, write) if text.startswith("BEGIN")]
    assert len(begun) >= 3
    assert set(begun) == {"BEGIN IMMEDIATE"}


async def test_wrong_batch_of_outcomes_is_rejected_as_a_whole(store: SQLiteStore) -> None:
    """A batch with one outcome that cannot be stored is refused as not retryable and changes nothing; the rest can be settled then."""
    jobs = [await put_and_claim(store) for _ in range(3)]
    changes = [done(jobs[0], '"a"'), done(jobs[1], '"\ud800"'), failed(jobs[2])]
    with pytest.raises(StoreRejected) as caught:
        await store.settle(changes)
    assert not caught.value.retryable
    assert [(await get(store, job.id)).status for job in jobs] == ["processing"] * 3
    verdicts = await store.settle([changes[0], changes[2]])
    assert [verdict.applied for verdict in verdicts] == [True, True]


async def test_large_batch_of_mixed_outcomes(store: SQLiteStore) -> None:
    """Batches of every size are written completely, though they are cut into statements of few sizes."""
    for size in (1, 2, 3, 7, 8, 9, 31, 33, 127, 130, 500, 513, 1_100):
        jobs = [new_job(f"q{size}") for _ in range(size)]
        assert all(answer.created for answer in await store.insert(jobs))
        claimed = (await claim(store, ask(f"q{size}"), total=2_000)).jobs
        assert [job.id for job in claimed] == [job.id for job in jobs]
        stale = done(claimed[0], guard=Held(99))
        half = size // 2
        verdicts = await store.settle([stale, *map(done, claimed[:half]), *map(failed, claimed[half:])])
        assert [verdict.applied for verdict in verdicts] == [False] + [True] * size
        [queue] = [queue for queue in (await store.stats()).queues if queue.queue == f"q{size}"]
        assert (queue.done, queue.failed, queue.processing) == (half, size - half, 0)


FULL_DISK = """
import resource
from mulligan.core.errors import StoreUnavailable

def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

async def main():
    store = SQLiteStore(sys.argv[1])
    await store.open()
    limit(600_000)
    stored, refused = [], None
    while refused is None:
        job = builders.new_job(payload='"' + "x" * 50_000 + '"')
        try:
            await store.insert([job])
            stored.append(job.id)
        except StoreUnavailable as problem:
            refused = job
    found = await store.get([*stored, refused.id])
    say([len(stored) > 0, all(job is not None for job in found[:-1]), found[-1] is None])
    limit(resource.RLIM_INFINITY)
    say((await store.insert([refused]))[0].created)
    await store.close()

asyncio.run(main())
"""


def test_full_disk_is_unavailable_and_loses_nothing(path: Path) -> None:
    """When the file cannot grow, the enqueue is refused as retryable, what was acknowledged is there, and later it goes on."""
    with child(FULL_DISK, path) as other:
        assert other.hear() == [True, True, True]
        assert other.hear() is True
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


KILLED = """
async def main():
    store = SQLiteStore(sys.argv[1])
    await store.open()
    while True:
        answers = await store.insert([builders.new_job() for _ in range(20)])
        say([answer.id for answer in answers])

asyncio.run(main())
"""


async def test_what_was_acknowledged_survives_a_kill(path: Path) -> None:
    """After kill -9 in the middle of writing, every acknowledged job is there, and every batch is whole or absent."""
    acknowledged: list[str] = []
    with child(KILLED, path) as other:
        for _ in range(20):
            acknowledged += other.hear()
    store = SQLiteStore(path)
    await store.open()
    assert None not in await store.get(acknowledged)
    assert (await store.stats()).queues[0].fresh_ready % 20 == 0
    await store.close()


async def test_finished_jobs_are_counted_by_their_rows(store: SQLiteStore) -> None:
    """The tallies follow rows that somebody changes or removes by hand."""
    for _ in range(3):
        await store.settle([done(await put_and_claim(store))])
    await store._write(lambda t: t.run("DELETE FROM mulligan_jobs WHERE seq = 1"))
    await store._write(lambda t: t.run("UPDATE mulligan_jobs SET status = 'failed', finished_at_us = 1 WHERE seq = 2"))
    [queue] = (await store.stats()).queues
    assert (queue.done, queue.failed) == (1, 1)
