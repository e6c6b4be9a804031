"""Jobs in the application's own transaction, through every kind of connection that is known."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from mulligan.core.clock import ManualClock
from mulligan.core.contract import Inserted
from mulligan.core.errors import IllegalMove, SchemaMismatch, StoreRejected, UsageError
from mulligan.core.job import NewJob
from mulligan.stores.postgres import PostgresStore, from_url
from tests.builders import claim, get, new_job

Insert = Callable[[list[NewJob]], Awaitable[list[Inserted]]]
End = Callable[[], Awaitable[None]]


class Own:
    """A connection of the application's own in an open transaction: insert, commit, roll back."""

    def __init__(self, insert: Insert, commit: End, rollback: End) -> None:
        self.insert, self.commit, self.rollback = insert, commit, rollback


def waiting(call: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """A plain function as one that can be awaited."""

    async def awaited(*args: Any) -> Any:
        return call(*args)

    return awaited


@asynccontextmanager
async def psycopg_connection(store: PostgresStore, url: str) -> AsyncIterator[Own]:
    """psycopg, whose rows are dictionaries here."""
    with psycopg.connect(url, row_factory=dict_row) as own:
        yield Own(waiting(lambda jobs: store.insert_in(own, jobs)), waiting(own.commit), waiting(own.rollback))


@asynccontextmanager
async def psycopg_async(store: PostgresStore, url: str) -> AsyncIterator[Own]:
    """psycopg's asynchronous connection."""
    async with await psycopg.AsyncConnection.connect(url) as own:
        yield Own(lambda jobs: store.insert_in_async(own, jobs), own.commit, own.rollback)


@asynccontextmanager
async def asyncpg_connection(store: PostgresStore, url: str) -> AsyncIterator[Own]:
    """asyncpg."""
    own = await asyncpg.connect(url)
    transaction = own.transaction()
    await transaction.start()
    yield Own(lambda jobs: store.insert_in_async(own, jobs), transaction.commit, transaction.rollback)
    await own.close()


@asynccontextmanager
async def asyncpg_pool(store: PostgresStore, url: str) -> AsyncIterator[Own]:
    """A connection out of asyncpg's pool."""
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool, pool.acquire() as own:
        transaction = own.transaction()
        await transaction.start()
        yield Own(lambda jobs: store.insert_in_async(own, jobs), transaction.commit, transaction.rollback)


@asynccontextmanager
async def sqlalchemy_connection(store: PostgresStore, url: str) -> AsyncIterator[Own]:
    """SQLAlchemy's connection, over psycopg."""
    engine = sqlalchemy.create_engine(url.replace("postgresql", "postgresql+psycopg", 1))
    with engine.connect() as own:
        yield Own(waiting(lambda jobs: store.insert_in(own, jobs)), waiting(own.commit), waiting(own.rollback))
    engine.dispose()


@asynccontextmanager
async def sqlalchemy_session(store: PostgresStore, url: str) -> AsyncIterator[Own]:
    """SQLAlchemy's session, over psycopg."""
    engine = sqlalchemy.create_engine(url.replace("postgresql", "postgresql+psycopg", 1))
    with Session(engine) as own:
        yield Own(waiting(lambda jobs: store.insert_in(own, jobs)), waiting(own.commit), waiting(own.rollback))
    engine.dispose()


@asynccontextmanager
async def sqlalchemy_async_connection(store: PostgresStore, url: str) -> AsyncIterator[Own]:
    """SQLAlchemy's asynchronous connection, over asyncpg."""
    engine = create_async_engine(url.replace("postgresql", "postgresql+asyncpg", 1))
    async with engine.connect() as own:
        yield Own(lambda jobs: store.insert_in_async(own, jobs), own.commit, own.rollback)
    await engine.dispose()


@asynccontextmanager
async def sqlalchemy_async_session(store: PostgresStore, url: str) -> AsyncIterator[Own]:
    """SQLAlchemy's asynchronous session, over psycopg."""
    engine = create_async_engine(url.replace("postgresql", "postgresql+psycopg", 1))
    async with AsyncSession(engine) as own:
        yield Own(lambda jobs: store.insert_in_async(own, jobs), own.commit, own.rollback)
    await engine.dispose()


KINDS = [
    psycopg_connection,
    psycopg_async,
    asyncpg_connection,
    asyncpg_pool,
    sqlalchemy_connection,
    sqlalchemy_session,
    sqlalchemy_async_connection,
    sqlalchemy_async_session,
]
Kind = Callable[[PostgresStore, str], Any]


@pytest.fixture(params=KINDS, ids=[kind.__name__ for kind in KINDS])
def kind(request: pytest.FixtureRequest) -> Kind:
    """Each kind of connection in its turn."""
    opened: Kind = request.param
    return opened


async def test_jobs_are_there_from_the_commit_on(store: PostgresStore, server_url: str, clock: ManualClock, kind: Kind) -> None:
    """A job that is inserted in the caller's transaction is there from its commit on, and not before."""
    job = new_job(delay_s=5, tags=("a", 'quo"te'), timeout_us=7, payload='{"args":["%s :p1 $1 100%"],"kwargs":{}}')
    async with kind(store, server_url) as own:
        [answer] = await own.insert([job])
        assert (answer.id, answer.created, answer.at_us) == (job.id, True, clock.now_us())
        assert await store.get([job.id]) == [None]
        await own.commit()
        stored = await get(store, job.id)
        assert (stored.status, stored.run_at_us, stored.tags, stored.timeout_us) == ("pending", clock.now_us() + 5_000_000, job.tags, 7)
        assert stored.payload == job.payload


async def test_jobs_go_with_the_rollback(store: PostgresStore, server_url: str, kind: Kind) -> None:
    """If the caller rolls back, the job never existed."""
    job = new_job()
    async with kind(store, server_url) as own:
        await own.insert([job])
        await own.rollback()
        assert await store.get([job.id]) == [None]


async def test_known_ids_and_taken_keys_are_answered_as_by_insert(store: PostgresStore, server_url: str, kind: Kind) -> None:
    """Repeats and unique keys mean the same as with insert."""
    first, second = new_job(unique_key="k"), new_job(unique_key="k")
    async with kind(store, server_url) as own:
        assert [answer.created for answer in await own.insert([first, first])] == [True, True]
        [answer] = await own.insert([second])
        assert (answer.id, answer.created) == (first.id, False)
        assert await own.insert([]) == []
        await own.commit()
    assert [job.id for job in (await claim(store)).jobs] == [first.id]


async def test_there_must_be_a_transaction_to_join(store: PostgresStore, server_url: str) -> None:
    """On a connection that commits every statement by itself, a transaction must have been begun."""
    with psycopg.connect(server_url, autocommit=True) as own:
        with pytest.raises(IllegalMove, match="begin one"):
            store.insert_in(own, [new_job()])
        with own.transaction():
            assert store.insert_in(own, [new_job()])[0].created
    bare = await asyncpg.connect(server_url)
    with pytest.raises(IllegalMove, match="begin one"):
        await store.insert_in_async(bare, [new_job()])
    await bare.close()


async def test_wrong_connections_are_refused_with_words(store: PostgresStore, server_url: str, url: str) -> None:
    """A connection of the wrong kind, a database without our schema and a text that cannot be stored are told apart."""
    with pytest.raises(UsageError, match="builtins.object"):
        store.insert_in(object(), [new_job()])
    with psycopg.connect(server_url) as own:
        with pytest.raises(UsageError, match="not asynchronous"):
            await store.insert_in_async(own, [new_job()])
        with pytest.raises(SchemaMismatch, match="mulligan migrate"):
            from_url(server_url + "?schema=nowhere").insert_in(own, [new_job()])
        own.rollback()
        with pytest.raises(StoreRejected):
            store.insert_in(own, [new_job(payload="a\0b")])
        own.rollback()
    strange = sqlalchemy.create_engine("sqlite://")
    with strange.connect() as own_too, pytest.raises(UsageError, match="sqlite"):
        store.insert_in(own_too, [new_job()])
    strange.dispose()


async def test_store_need_not_be_open(store: PostgresStore, server_url: str, url: str) -> None:
    """A process that only enqueues with its own connection needs no thread and no connection of ours."""
    job = new_job()
    with psycopg.connect(server_url) as own:
        from_url(url).insert_in(own, [job])
    assert (await get(store, job.id)).id == job.id


async def test_one_name_for_both_kinds_of_connection(store: PostgresStore, server_url: str) -> None:
    """With an asynchronous connection, insert_in has an answer to be awaited; the app relies on it."""
    job = new_job()
    own = await asyncpg.connect(server_url)
    async with own.transaction():
        [answer] = await store.insert_in(own, [job])
    await own.close()
    assert answer.created
    assert (await get(store, job.id)).id == job.id


async def test_two_transactions_with_the_same_keys_in_different_orders_do_not_deadlock(real: PostgresStore, server_url: str) -> None:
    """Both store their jobs, one after the other: what they have in common is written in the same order."""
    keys = [f"k-{number}" for number in range(2_000)]

    async def store_all(order: list[str]) -> int:
        connection = await asyncpg.connect(server_url)
        try:
            async with connection.transaction():
                answers = await real.insert_in(connection, [new_job(unique_key=key) for key in order])
        finally:
            await connection.close()
        return sum(answer.created for answer in answers)

    assert sorted(await asyncio.gather(store_all(keys), store_all(keys[::-1]))) == [0, 2_000]
