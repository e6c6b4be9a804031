from __future__ import annotations

import asyncio
import contextlib
import threading

import asyncpg
import pytest

from mulligan.core.errors import BadSetting, MulliganError, SchemaMismatch, StoreRejected, StoreUnavailable
from mulligan.stores.postgres import PostgresStore, from_url
from mulligan.stores.postgres.database import Transaction
from mulligan.stores.postgres.faults import translated, without_secrets
from tests.builders import claim, new_job, retry
from tests.postgres.conftest import Raw
from tests.servers.proxy import Proxy

CODES: dict[str, type[MulliganError]] = {
    "57P01": StoreUnavailable,
    "57P02": StoreUnavailable,
    "57P03": StoreUnavailable,
    "57014": StoreUnavailable,
    "08006": StoreUnavailable,
    "40001": StoreUnavailable,
    "40P01": StoreUnavailable,
    "53100": StoreUnavailable,
    "53300": StoreUnavailable,
    "55P03": StoreUnavailable,
    "25006": StoreUnavailable,
    "XX001": StoreUnavailable,
    "22001": StoreRejected,
    "22P05": StoreRejected,
    "23505": StoreRejected,
    "54000": StoreRejected,
    "42501": StoreRejected,
    "42P01": SchemaMismatch,
    "42883": SchemaMismatch,
    "3F000": SchemaMismatch,
    "28P01": BadSetting,
    "3D000": BadSetting,
}


@pytest.mark.parametrize("code", CODES)
def test_every_code_has_its_meaning(code: str) -> None:
    """What may be tried again, what will be refused again, and what is wrongly set up are told apart by the server's code."""
    problem = asyncpg.PostgresError.new({"C": code, "M": "words of the server"})
    answer = translated(problem, "PostgreSQL at db:5432")
    assert type(answer) is CODES[code]
    assert "db:5432" in str(answer)
    assert "words of the server" in str(answer)


def test_secrets_are_taken_out_of_a_drivers_words() -> None:
    """A driver may quote the address it was given."""
    assert without_secrets("cannot use postgresql://user:pass@host/db") == "cannot use postgresql://user:***@host/db"
    assert "hunter2" not in without_secrets("bad dsn: host=x password=hunter2 user=y")


async def test_terminated_connections_are_replaced(real: PostgresStore, raw: Raw) -> None:
    """After the server has ended every connection of ours, the next calls work as if nothing had happened."""
    await real.insert([new_job() for _ in range(3)])
    pids = [connection.get_server_pid() for connection in (*real._db.pool._idle, *real._db.pool._in_use)]
    assert pids
    for pid in pids:
        raw.rows("SELECT pg_terminate_backend(%s)", (pid,))
    assert len((await claim(real)).jobs) == 3
    assert await real.now_us() > 0


async def test_conflicts_are_repeated_inside(real: PostgresStore, raw: Raw) -> None:
    """A transaction that meets another one and fails for it is begun anew, and its caller does not hear of it."""
    tries: list[int] = []

    async def work(transaction: Transaction) -> int:
        tries.append(1)
        if len(tries) < 3:
            await transaction.script("DO $$ BEGIN RAISE EXCEPTION 'met' USING ERRCODE = '40P01'; END $$")
        return int(await transaction.value("SELECT 7"))

    assert await real._call(lambda: real._db.within(work)) == 7
    assert len(tries) == 3


async def test_a_lock_that_is_held_too_long_is_unavailable(url: str, real: PostgresStore, raw: Raw) -> None:
    """A call ends by its deadline, and says what may be the matter; afterwards the store works again."""
    store = from_url(f"{url}&timeout=0.5")
    await store.open()
    with raw.connection.transaction():
        raw.run("LOCK TABLE {s}.jobs IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(StoreUnavailable, match="time-out|did not answer"):
            await store.insert([new_job()])
    assert (await store.insert([new_job()]))[0].created
    await store.close()


async def test_a_client_that_stands_still_holds_nobody_up(url: str, real: PostgresStore) -> None:
    """A process is stopped in the middle of a transaction: what it has locked is free again half a second later, and its own work is
    done when it goes on."""
    go_on, stands = threading.Event(), threading.Event()
    await real.insert([new_job()])
    [job] = (await claim(real)).jobs

    async def stopped(transaction: Transaction) -> int:
        await transaction.rows("SELECT 1 FROM {s}.jobs FOR UPDATE")
        stands.set()
        while not go_on.is_set():
            await asyncio.sleep(0.01)
        return int(await transaction.value("SELECT 7"))

    holder = asyncio.ensure_future(real._call(lambda: real._db.within(stopped)))
    while not stands.is_set():
        await asyncio.sleep(0.01)
    other = from_url(url)
    await other.open()
    [verdict] = await asyncio.wait_for(other.settle([retry(job)]), 5)
    assert verdict.applied
    assert not holder.done()
    go_on.set()
    with contextlib.suppress(StoreUnavailable):  # told, or carried out anew
        assert await holder == 7
    assert await real.now_us() > 0
    await other.close()


async def test_missing_functions_are_a_schema_mismatch(server_url: str, raw: Raw) -> None:
    """A schema that was dropped under an open store is named as such."""
    raw.run("DROP SCHEMA IF EXISTS t_dropped CASCADE")
    store = from_url(f"{server_url}?schema=t_dropped")
    await store.open()
    raw.run("DROP SCHEMA t_dropped CASCADE")
    with pytest.raises(SchemaMismatch, match="mulligan migrate"):
        await store.insert([new_job()])
    await store.close()


async def test_a_lost_answer_is_found_by_the_repeat(url: str, real: PostgresStore) -> None:
    """The connection breaks after the server has done the work and before the answer: the repeat inside finds it done."""
    with Proxy(url) as proxy:
        store = from_url(proxy.url_of(url))
        await store.open()
        await store.insert([new_job() for _ in range(10)])
        dropped = proxy.drop_reply(lambda request: b"just-once" in request)
        taken = await claim(store, total=4, claim_id="just-once")
        assert dropped.is_set()
        assert len(taken.jobs) == 4
        [queue] = (await real.stats()).queues
        assert (queue.processing, queue.fresh_ready) == (4, 6)
        await store.close()


async def test_a_silent_network_is_noticed(url: str, real: PostgresStore) -> None:
    """Without a word from the server a call ends by its deadline, and later ones work on new connections."""
    with Proxy(url) as proxy:
        store = from_url(f"{proxy.url_of(url)}&timeout=0.5")
        await store.open()
        await store.insert([new_job()])
        proxy.go_silent()
        with pytest.raises(StoreUnavailable, match="did not answer within 0.5 s|time-out|cannot be reached"):
            await store.stats()
        proxy.speak_again()
        assert len((await asyncio.wait_for(claim(store), 20)).jobs) == 1
        await store.close()
