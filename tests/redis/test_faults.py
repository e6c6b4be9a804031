from __future__ import annotations

import asyncio

import pytest
from redis.exceptions import AuthenticationError, BusyLoadingError, OutOfMemoryError, ReadOnlyError, ResponseError
from redis.exceptions import ConnectionError as DriverConnectionError

from mulligan.core.errors import BadSetting, MulliganError, SchemaMismatch, StoreRejected, StoreUnavailable
from mulligan.core.limits import TOKEN
from mulligan.stores.redis import RedisStore, from_url
from mulligan.stores.redis.faults import translated
from tests.builders import all_jobs, ask, bucket, claim, done, grouped, new_job, retry
from tests.redis.keys import command
from tests.servers import Proxy, Redis


@pytest.mark.parametrize(
    "problem, expected",
    [
        (ResponseError("BUSY Redis is busy running a script."), StoreUnavailable),
        (BusyLoadingError("Redis is loading the dataset in memory"), StoreUnavailable),
        (ReadOnlyError("You can't write against a read only replica."), StoreUnavailable),
        (ResponseError("MASTERDOWN Link with MASTER is down"), StoreUnavailable),
        (ResponseError("CLUSTERDOWN The cluster is down"), StoreUnavailable),
        (ResponseError("MOVED 3999 127.0.0.1:6381"), StoreUnavailable),
        (ResponseError("TRYAGAIN Multiple keys request during rehashing of slot"), StoreUnavailable),
        (OutOfMemoryError("command not allowed when used memory > 'maxmemory'."), StoreUnavailable),
        (ResponseError("Error running script: @user_script:9: -OOM command not allowed"), StoreUnavailable),
        (ResponseError("MISCONF Errors writing to the AOF file"), StoreUnavailable),
        (DriverConnectionError("Connection refused"), StoreUnavailable),
        (ConnectionResetError("reset"), StoreUnavailable),
        (AuthenticationError("WRONGPASS invalid username-password pair"), BadSetting),
        (ResponseError("NOAUTH Authentication required."), BadSetting),
        (ResponseError("NOPERM this user has no permissions to run 'evalsha'"), BadSetting),
        (ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value"), SchemaMismatch),
        (ResponseError("DB index is out of range"), BadSetting),
        (ResponseError("ERR something else"), StoreRejected),
    ],
)
def test_errors_are_translated(problem: Exception, expected: type[MulliganError]) -> None:
    """Each kind of answer becomes the error that tells a caller what to do, naming the server."""
    found = translated(problem, "Redis at host:1")
    assert type(found) is expected
    assert "Redis at host:1" in str(found)


async def test_a_full_server_refuses_new_jobs_and_lets_work_end(own: RedisStore) -> None:
    """Out of memory: enqueueing is refused and leaves nothing behind, while claimed and waiting jobs run to their end."""
    await own.insert([new_job() for _ in range(20)])
    held = (await claim(own, total=10)).jobs
    before = await all_jobs(own)
    await command(own, "CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(StoreUnavailable, match="out of memory"):
        await own.insert([new_job(unique_key="key")])
    assert set(await all_jobs(own)) == set(before)
    assert all(verdict.applied for verdict in await own.settle([done(job) for job in held[:5]]))
    assert all(verdict.applied for verdict in await own.settle([retry(job) for job in held[5:]]))
    assert len((await claim(own)).jobs) == 15
    assert await own.prune("done", 0, 100) == 5
    await command(own, "CONFIG", "SET", "maxmemory", "0")
    [answer] = await own.insert([new_job(unique_key="key")])
    assert answer.created
    assert sum((await own.repair()).values()) == 0


async def test_a_busy_server_is_waited_for(own: RedisStore, server: Redis) -> None:
    """While another client's script blocks the server, calls fail with what to do; once it is killed they succeed."""
    await command(own, "CONFIG", "SET", "lua-time-limit", "10")
    other = from_url(server.url)
    await other.open()
    blocking = asyncio.create_task(command(other, "EVAL", "while true do end", 0))
    with pytest.raises(StoreUnavailable, match="slow script"):
        while True:
            await own.now_us()
    await command(own, "SCRIPT", "KILL")
    with pytest.raises(MulliganError):
        await blocking
    await other.close()
    await own.insert([new_job()])
    assert len((await claim(own)).jobs) == 1


async def test_a_key_of_somebody_else_is_named(own: RedisStore) -> None:
    """A key of the app that holds another type is refused with advice."""
    await command(own, "SET", "{}leases", "mine")
    await own.insert([new_job()])
    with pytest.raises(SchemaMismatch, match=r"\?app="):
        await claim(own)


async def test_a_silent_server_is_given_up(server: Redis) -> None:
    """A server that does not answer costs one deadline; its connection is not used again, and the next call succeeds."""
    with Proxy(server.url) as proxy:
        store = from_url(proxy.url_of(server.url) + "?timeout=0.5")
        await store.open()
        proxy.go_silent()
        with pytest.raises(StoreUnavailable, match="did not answer"):
            await store.stats()
        proxy.speak_again()
        proxy.reset()
        assert (await store.stats()).queues == []
        await store.close()


async def test_a_lost_reply_of_a_claim_is_asked_for_again(server: Redis) -> None:
    """A claim whose reply was lost is repeated under its id and returns the same jobs."""
    with Proxy(server.url) as proxy:
        store = from_url(proxy.url_of(server.url))
        await store.open()
        jobs = [new_job() for _ in range(5)]
        await store.insert(jobs)
        await claim(store, ask("other"))  # so that the server knows the script, and the reply that is lost is the script's
        dropped = proxy.drop_reply(lambda request: b"EVALSHA" in request)
        claimed = (await claim(store)).jobs
        assert dropped.is_set()
        assert [job.id for job in claimed] == [job.id for job in jobs]
        assert {job.fence for job in claimed} == {1}
        await store.close()


async def test_lost_replies_cost_no_token_and_no_version(server: Redis) -> None:
    """A limited claim and a note whose replies were lost are repeated: the token is taken once, and the note has its first version."""
    with Proxy(server.url) as proxy:
        store = from_url(proxy.url_of(server.url))
        await store.open()
        await store.insert([grouped(fair="a") for _ in range(3)])
        await claim(store, ask("other"))
        dropped = proxy.drop_reply(lambda request: b"EVALSHA" in request)
        claimed = await claim(store, ask(limits=(bucket("starts", burst=2),)), total=1)
        assert dropped.is_set() and len(claimed.jobs) == 1
        assert (await store.levels())["starts"].level_u == TOKEN
        other = await store.put_note("another", "body", 0)
        dropped = proxy.drop_reply(lambda request: b"body of the note" in request)
        note = await store.put_note("key", "body of the note", 0)
        assert dropped.is_set() and note is not None and note.version == 1
        assert await store.notes("") == [other, note]
        await store.close()
