from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from mulligan.core.clock import ManualClock
from mulligan.core.errors import IllegalMove, SchemaMismatch, StoreRejected, StoreUnavailable
from mulligan.stores.sqlite import SQLiteStore
from tests.builders import claim, get, new_job


@pytest.fixture
def own(store: SQLiteStore, path: Path) -> Iterator[sqlite3.Connection]:
    """The application's own connection to the same file, with a table of its own."""
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE orders (name TEXT)")
    yield connection
    connection.close()


async def test_job_and_row_are_committed_together(store: SQLiteStore, own: sqlite3.Connection, clock: ManualClock) -> None:
    """A job that is inserted in the caller's transaction is there from its commit on, and not before (S21)."""
    job = new_job(delay_s=5)
    own.execute("INSERT INTO orders VALUES ('tea')")
    [answer] = store.insert_in(own, [job])
    assert (answer.id, answer.created, answer.at_us) == (job.id, True, clock.now_us())
    assert await store.get([job.id]) == [None]
    own.commit()
    stored = await get(store, job.id)
    assert (stored.status, stored.run_at_us) == ("pending", clock.now_us() + 5_000_000)
    ear = store.listen()
    store.announce()
    assert await ear.wait(10)


async def test_job_goes_with_the_rollback(store: SQLiteStore, own: sqlite3.Connection) -> None:
    """If the caller rolls back, the job never existed."""
    job = new_job()
    own.execute("INSERT INTO orders VALUES ('tea')")
    store.insert_in(own, [job])
    own.rollback()
    assert await store.get([job.id]) == [None]
    assert own.execute("SELECT count(*) FROM orders").fetchone() == (0,)


async def test_known_ids_and_taken_keys_are_answered_as_by_insert(store: SQLiteStore, own: sqlite3.Connection) -> None:
    """Repeats and unique keys mean the same as with insert, whatever the caller's connection makes of rows."""
    own.row_factory = lambda cursor, row: {"columns": row}
    first, second = new_job(unique_key="k"), new_job(unique_key="k")
    own.execute("BEGIN IMMEDIATE")
    assert [answer.created for answer in store.insert_in(own, [first, first])] == [True, True]
    [answer] = store.insert_in(own, [second])
    assert (answer.id, answer.created) == (first.id, False)
    own.commit()
    assert [job.id for job in (await claim(store)).jobs] == [first.id]


async def test_there_must_be_a_transaction_to_join(store: SQLiteStore, path: Path) -> None:
    """On a connection that commits every statement by itself, a transaction must have been begun."""
    own = sqlite3.connect(path, isolation_level=None)
    with pytest.raises(IllegalMove, match="BEGIN IMMEDIATE"):
        store.insert_in(own, [new_job()])
    own.execute("BEGIN")
    assert store.insert_in(own, [new_job()])[0].created
    own.execute("COMMIT")
    own.close()


async def test_errors_of_the_caller_s_connection_are_store_errors(store: SQLiteStore, path: Path, tmp_path: Path) -> None:
    """A database without our tables, a text that cannot be stored and a locked file are told apart."""
    strange = sqlite3.connect(tmp_path / "other.db")
    with pytest.raises(SchemaMismatch, match="mulligan migrate"):
        store.insert_in(strange, [new_job()])
    strange.close()
    own, holder = sqlite3.connect(path, timeout=0), sqlite3.connect(path)
    with pytest.raises(StoreRejected):
        store.insert_in(own, [new_job(payload="\ud800")])
    own.rollback()
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="locked"):
        store.insert_in(own, [new_job()])
    holder.close()
    own.close()


async def test_store_need_not_be_open(path: Path, store: SQLiteStore) -> None:
    """A process that only enqueues with its own connection needs no threads of ours."""
    own = sqlite3.connect(path)
    job = new_job()
    SQLiteStore(path).insert_in(own, [job])
    own.commit()
    own.close()
    assert (await get(store, job.id)).id == job.id
