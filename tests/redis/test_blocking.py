"""Inserts by threads that block: their connections, what becomes of them when a server or a network fails, and interruptions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import pytest

from mulligan.core.errors import IllegalMove, StoreRejected, StoreUnavailable
from mulligan.stores.redis import RedisStore, from_url
from mulligan.stores.redis.lines import Lines
from tests.builders import get, new_job
from tests.interrupting import interrupted
from tests.redis.keys import command
from tests.servers import Proxy, Redis
from tests.servers.urls import with_option

EVENTS_MAX = 5_000


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(20) as threads:
        yield threads


@pytest.fixture
async def proxied(server: Redis) -> AsyncIterator[tuple[RedisStore, Proxy]]:
    """An open store with a short time-out and two connections, and the proxy it goes through."""
    with Proxy(server.url) as proxy:
        store = from_url(with_option(with_option(proxy.url_of(server.url), "timeout", "0.5"), "connections", "2"))
        await store.open()
        yield store, proxy
        await store.close()


def line_id(store: RedisStore) -> int:
    """The server's number of the connection that a lone thread uses."""
    assert store._lines is not None
    return int(store._lines.execute_command("CLIENT", "ID"))


async def test_who_is_alone_uses_one_connection(own: RedisStore) -> None:
    """However many threads insert, one after another, there is one connection; it ends with the store."""
    number = line_id(own)
    for _ in range(5):
        with ThreadPoolExecutor(1) as thread:
            assert (await asyncio.wrap_future(thread.submit(own.insert_now, [new_job()])))[0].created
    lines = own._lines
    assert lines is not None
    assert [line._is_sound for line in lines._lines] == [True] + [False] * 7
    assert line_id(own) == number
    await own.close()
    with pytest.raises(IllegalMove, match="closed"):
        await asyncio.to_thread(lines.execute_command, "PING")
    await own.open()
    assert f"id={number} ".encode() not in await command(own, "CLIENT", "LIST")


async def test_threads_wait_for_one_another(proxied: tuple[RedisStore, Proxy], threads: ThreadPoolExecutor) -> None:
    """Twenty threads at once share the two connections that the URL allows, and each gets its own answer."""
    store, proxy = proxied
    before = proxy.connections
    jobs = [[new_job() for _ in range(20)] for _ in range(20)]
    start = threading.Barrier(20)

    def produce(own: list) -> list[str]:  # type: ignore[type-arg]
        start.wait(20)
        return [answer.id for job in own for answer in store.insert_now([job])]

    answers = await asyncio.gather(*(asyncio.wrap_future(threads.submit(produce, own)) for own in jobs))
    assert answers == [[job.id for job in own] for own in jobs]
    assert (await store.stats()).queues[0].fresh_ready == 400
    assert proxy.connections - before <= 2 + 3  # and those of the store's own loop


async def test_a_script_that_was_forgotten_is_told_again(own: RedisStore) -> None:
    """SCRIPT FLUSH is not noticed, neither by a single job nor by many."""
    for jobs in ([new_job()], [new_job(), new_job()]):
        await command(own, "SCRIPT", "FLUSH")
        assert [answer.created for answer in await asyncio.to_thread(own.insert_now, jobs)] == [True] * len(jobs)


async def test_a_restarted_server_is_not_noticed(own: RedisStore, server: Redis) -> None:
    """Connections that died with the server are made anew, and the call is repeated."""
    await asyncio.to_thread(own.insert_now, [new_job()])
    server.kill()
    server.start()
    [answer] = await asyncio.to_thread(own.insert_now, [job := new_job()])
    assert (answer.id, answer.created) == (job.id, True)
    assert (await own.stats()).queues[0].fresh_ready == 2


async def test_a_lost_answer_is_asked_for_again(proxied: tuple[RedisStore, Proxy]) -> None:
    """The job was stored, and the answer lost on its way: the call is repeated, says that it was created, and stores it once."""
    store, proxy = proxied
    await asyncio.to_thread(store.insert_now, [new_job()])
    job = new_job(unique_key="k")
    dropped = proxy.drop_reply(lambda request: b"EVALSHA" in request and job.id.encode() in request)
    [answer] = await asyncio.to_thread(store.insert_now, [job])
    assert dropped.is_set()
    assert (answer.id, answer.created) == (job.id, True)
    assert (await store.stats()).queues[0].fresh_ready == 2


async def test_a_silent_server_is_unavailable_after_one_time_out(
    proxied: tuple[RedisStore, Proxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silence is told to the caller, not repeated; what comes after it gets its own answer and not the late one."""
    store, proxy = proxied
    await asyncio.to_thread(store.insert_now, [new_job()])
    proxy.go_silent()
    asked = []
    with monkeypatch.context() as patch, pytest.raises(StoreUnavailable, match=r"did not answer within 0\.5 s"):
        ask = Lines.execute_command
        patch.setattr(Lines, "execute_command", lambda lines, *words: (asked.append(words), ask(lines, *words))[1])
        await asyncio.to_thread(store.insert_now, [new_job()])
    assert len(asked) == 1
    proxy.speak_again()
    [answer] = await asyncio.to_thread(store.insert_now, [job := new_job()])
    assert (answer.id, answer.created) == (job.id, True)


async def test_a_server_that_is_gone_is_unavailable(proxied: tuple[RedisStore, Proxy], server: Redis) -> None:
    """Refused connections are told after a few repeats; once the server is back all is well."""
    store, proxy = proxied
    await asyncio.to_thread(store.insert_now, [new_job()])
    proxy.refuse()
    proxy.reset()
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        await asyncio.to_thread(store.insert_now, [new_job()])
    proxy.accept_again()
    assert (await asyncio.to_thread(store.insert_now, [new_job()]))[0].created


async def test_errors_of_the_server_are_translated(own: RedisStore) -> None:
    """A server that is full is unavailable, a changed password too, since it was right once; a refusal leaves the connection sound."""
    number = line_id(own)
    await command(own, "CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(StoreUnavailable, match="out of memory"):
        await asyncio.to_thread(own.insert_now, [new_job(unique_key="key")])
    await command(own, "CONFIG", "SET", "maxmemory", "0")
    with pytest.raises(StoreRejected):
        await asyncio.to_thread(own.insert_now, [new_job(payload='"\ud800"')])
    assert (await asyncio.to_thread(own.insert_now, [new_job()]))[0].created
    assert line_id(own) == number


async def test_a_loss_is_noticed(own: RedisStore, caplog: pytest.LogCaptureFixture) -> None:
    """A flush under a program that does nothing but enqueue is noticed, and noted in the store."""
    await asyncio.to_thread(own.insert_now, [new_job()])
    await command(own, "FLUSHALL")
    await asyncio.to_thread(own.insert_now, [job := new_job()])
    while not (found := (await own.promise()).weaknesses):  # the note is made behind the back of the thread that enqueued
        await asyncio.sleep(0)
    assert "all keys are gone" in found[0].what
    assert len([record for record in caplog.records if "has lost data" in record.message]) == 1
    assert (await get(own, job.id)).status == "pending"


async def test_an_interrupted_call_leaves_nothing_half_done(own: RedisStore, threads: ThreadPoolExecutor) -> None:
    """Wherever Ctrl-C strikes, the next call gets its own answer, on a connection that is free, and no job is stored twice."""
    await asyncio.to_thread(own.insert_now, [new_job("interrupted")])  # what is remembered of a kind of job saves steps
    lines = own._lines
    assert lines is not None
    jobs = []
    for after in range(EVENTS_MAX):
        job, queue = new_job("interrupted"), f"after-{after}"
        if not threads.submit(interrupted, partial(own.insert_now, [job]), after).result(20):
            break
        jobs.append(job.id)
        [answer] = threads.submit(own.insert_now, [follower := new_job(queue, unique_key="k")]).result(20)
        assert (answer.id, answer.created) == (follower.id, True)
        for line in lines._lines:
            assert line._turn.acquire(blocking=False), f"a connection is taken for good after step {after}"
            line._turn.release()
            assert not line._is_in_use
    assert 50 < len(jobs) < EVENTS_MAX
    found = [await own.get([job_id]) for job_id in jobs]
    assert 0 < sum(one != [None] for one in found) < len(jobs)


async def test_a_call_into_a_call_of_its_own_thread_takes_another_connection(own: RedisStore) -> None:
    """A signal handler that enqueues while it interrupts an enqueue gets its own answer, and so does the one it interrupted."""

    class Interrupting:
        """A connection in the middle of whose answer another call is made."""

        def __init__(self) -> None:
            self.said: list[object] = []

        def connect(self) -> None:
            pass

        disconnect = connect

        def send_packed_command(self, command: list[bytes], check_health: bool = True) -> None:
            self.said.append(command[0].split()[-1])

        def read_response(self) -> object:
            said = self.said[-1]
            if said == b"outer":
                self.inner = lines.execute_command("inner")
            return said

    made: list[Interrupting] = []

    def make() -> Interrupting:
        made.append(Interrupting())
        return made[-1]

    lines = Lines(make, 2, 0)
    assert lines.execute_command("outer") == b"outer"
    assert [one.said for one in made] == [[b"outer"], [b"inner"]]
    assert made[0].inner == b"inner"
    with suppress(TimeoutError):
        lines.close(0)
