"""The same app from code without an event loop: app.sync and task.sync."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from mulligan import BadSetting, IllegalMove, JobFailed, JobNotFound, Mulligan, WrongArguments
from mulligan.core.events import Event
from mulligan.handle import ScheduleHandle
from mulligan.request import Options
from mulligan.sync import SyncHandle
from tests.interrupting import interrupted


@pytest.fixture
def plain(url: str) -> Iterator[Mulligan]:
    """An app with one task, used without a loop, and closed at the end."""
    app = Mulligan(url)

    @app.task(queue="q")
    def double(number: int) -> int:
        if number < 0:
            raise ValueError("negative")
        return 2 * number

    yield app
    app.sync.close()


def test_the_whole_client_side(plain: Mulligan) -> None:
    """Enqueue, look, claim, settle, requeue, cancel, pause and resume, all blocking, from a plain thread."""
    double = plain.task(queue="q", name="again")(lambda number: number)
    typed = double.sync.enqueue(1)
    named = plain.sync.enqueue("double", args=[2])
    optioned = double.options(delay=100, tags=["t"]).sync.enqueue(3)
    assert isinstance(named, SyncHandle)
    assert [handle.created for handle in (typed, named, optioned)] == [True] * 3
    assert plain.sync.get(typed.id).args == [1] == typed.job().args
    many = plain.sync.enqueue_many([double.job(number) for number in range(600)])
    assert len({handle.id for handle in many}) == 600
    assert sum(1 for _ in plain.sync.jobs(queue="q")) == 603
    assert [job.id for job in plain.sync.jobs(tag="t")] == [optioned.id]
    assert plain.sync.status()["q"].queue_size == 603
    first, second = plain.sync.claim(queue="q", limit=2)
    assert (first.id, second.id, first.job.fence) == (typed.id, named.id, 1)
    assert first.extend()
    assert first.complete("done")
    assert not first.release()
    assert typed.result(timeout=5) == "done"
    assert second.fail("bad", retry=False)
    with pytest.raises(JobFailed, match="bad"):
        named.result(timeout=5)
    assert plain.sync.requeue(named.id)
    assert not plain.sync.requeue(named.id)
    assert plain.sync.cancel(optioned.id) == "cancelled"
    assert plain.sync.pause("q").paused
    assert plain.sync.claim(queue="q") == []
    assert not plain.sync.resume("q").paused
    [third] = plain.sync.claim(queue="q")
    assert third.snooze(60)
    [fourth] = plain.sync.claim(queue="q")
    assert fourth.release()
    assert isinstance(plain.sync.enqueue("double", args=[1], interval=60), ScheduleHandle)


def test_a_fleet_is_steered(plain: Mulligan) -> None:
    """Settings of queues and breakers are changed, read and taken back, all blocking."""
    assert plain.sync.configure("q", claim="fifo", concurrency=1, by="ann") == {"claim": "fifo", "concurrency": 1}
    [changed] = plain.sync.configured()
    assert (changed.queue, changed.settings, changed.by) == ("q", {"claim": "fifo", "concurrency": 1}, "ann")
    plain.sync.enqueue_many([plain.build(plain.registry.need("double"), [number], {}, Options()) for number in range(3)])
    assert len(plain.sync.claim(queue="q", limit=3)) == 1
    plain.sync.reset_queue("q", by="ann")
    assert plain.sync.configured() == []
    assert len(plain.sync.claim(queue="q", limit=3)) == 2
    assert plain.sync.open_breaker("bank", reason="tea", by="ann").state == "open"
    [breaker] = plain.sync.breakers()
    assert (breaker.name, breaker.state, breaker.reason, breaker.by) == ("bank", "open", "tea", "ann")
    assert plain.sync.close_breaker("bank").state == "closed"
    with pytest.raises(BadSetting, match="concurrency"):
        plain.sync.configure("q", concurrency=0)


def test_errors_come_through(plain: Mulligan) -> None:
    """What the async form raises, the blocking one raises, too."""
    with pytest.raises(JobNotFound):
        plain.sync.get("nosuch")
    with pytest.raises(WrongArguments):
        plain.sync.enqueue("double", args=[1, 2, 3])
    handle = plain.sync.enqueue("double", args=[1])
    assert isinstance(handle, SyncHandle)
    with pytest.raises(TimeoutError):
        handle.result(timeout=0.02)


def test_many_threads_share_one_app(plain: Mulligan) -> None:
    """Calls from many threads at once, the first ones racing to open the store, are all carried out."""
    ids: list[str] = []
    start = threading.Barrier(8)

    def produce() -> None:
        start.wait()
        for number in range(25):
            handle = plain.sync.enqueue("double", args=[number])
            assert isinstance(handle, SyncHandle)
            ids.append(handle.id)

    threads = [threading.Thread(target=produce) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(set(ids)) == 200
    assert plain.sync.status()["q"].ready == 200
    assert plain.metrics.snapshot()["submitted"] == 200


def test_what_watches_hears_of_each_job(plain: Mulligan) -> None:
    """A subscriber hears of the jobs that were made, one after the other, whichever threads enqueue; of a repeat it hears nothing."""
    heard: list[str] = []
    at_once: list[str] = []
    inside = threading.Lock()

    def hear(event: Event) -> None:
        if not inside.acquire(blocking=False):
            at_once.append(event.job_id)
            return
        heard.append(event.job_id)
        for _ in range(5):
            os.sched_yield()  # lets another thread in, should one be able to
        inside.release()
        if event.task == "outer":
            plain.sync.enqueue("double", args=[1])

    plain.events.subscribe(hear, ["ENQUEUED"])
    plain.declare("outer", queue="q")
    jobs = [plain.build(plain.registry.need("double"), [number], {}, Options()) for number in range(40)]
    with ThreadPoolExecutor(4) as threads:
        for _ in range(2):
            list(threads.map(lambda job: plain.sync.enqueue_many([job, job]), jobs))
    if hasattr(plain.store, "insert_now"):  # elsewhere a subscriber runs on the background loop, which a sync call would block
        outer = plain.sync.enqueue("outer")
        assert isinstance(outer, SyncHandle)
        assert heard[-2] == outer.id
        del heard[-2:]
    # A job twice in one list is told twice, and so is a repeat: it is created in the store's words, whatever became of the first answer.
    assert at_once == []
    assert sorted(heard) == sorted([job.id for job in jobs] * 4)


def test_threads_beside_a_loop_and_a_worker(plain: Mulligan) -> None:
    """Blocking enqueues of many threads, async ones on a loop and a worker on the same store at once: each job runs, and once."""
    ran: list[int] = []
    count = plain.task(queue="q", name="count")(ran.append)

    def produce(start: int) -> None:
        for number in range(start, start + 40, 4):
            count.sync.enqueue(number)
            handles = plain.sync.enqueue_many([count.job(number + 1), count.job(number + 2)])
            assert [handle.created for handle in handles] == [True, True]
            assert plain.sync.enqueue("count", args=[number + 3])

    async def serve() -> None:
        async with plain.worker(queues=["q"]) as worker:
            producing = [asyncio.to_thread(produce, start) for start in range(0, 240, 40)]
            await asyncio.gather(*producing, *(count.enqueue(number) for number in range(240, 400)))
            await worker.drain()
        await plain.close()

    asyncio.run(serve())
    assert sorted(ran) == list(range(400))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore:coroutine:RuntimeWarning")
def test_who_is_interrupted_while_he_waits_holds_up_nobody(plain: Mulligan) -> None:
    """Wherever Ctrl-C strikes a thread that waits for the background loop, that one goes on with the calls of others."""
    plain.sync.enqueue("double", args=[1])
    with ThreadPoolExecutor(1) as threads:
        for after in range(2_000):
            is_interrupted = threads.submit(interrupted, plain.sync.status, after).result(20)
            assert plain.sync.status()["q"].ready == 1
            if not is_interrupted:
                break
    assert 10 < after < 2_000


async def test_inside_a_running_loop_it_is_refused(plain: Mulligan) -> None:
    """A blocking call on a loop's own thread would stop the loop; it says to await the async form, and nothing is stored."""
    task = plain.task(name="one")(lambda: None)
    for call in (
        lambda: task.sync.enqueue(),
        lambda: plain.sync.enqueue("one"),
        lambda: plain.sync.enqueue_many([task.job()]),
        lambda: plain.sync.get("x"),
        lambda: list(plain.sync.jobs()),
        lambda: plain.sync.status(),
        lambda: plain.sync.claim(),
        lambda: plain.sync.pause("default"),
        lambda: plain.sync.configure("default", claim="fifo"),
        lambda: plain.sync.reset_queue("default"),
        lambda: plain.sync.configured(),
        lambda: plain.sync.open_breaker("bank"),
        lambda: plain.sync.close_breaker("bank"),
        lambda: plain.sync.breakers(),
        lambda: plain.sync.close(),
    ):
        with pytest.raises(IllegalMove, match="await the async form"):
            call()
    assert (await plain.status()).queues == []
    assert await plain.store.notes("") == []
    await plain.close()


async def test_a_thread_beside_a_loop_may_block(plain: Mulligan) -> None:
    """The same app object serves a loop and, through sync, the threads beside it: one registry, one store."""
    async with plain.worker(queues=["q"]):
        handle = await asyncio.to_thread(plain.sync.enqueue, "double", args=[21])
        assert isinstance(handle, SyncHandle)
        assert await asyncio.to_thread(handle.result, 10) == 42
        job = await plain.get(handle.id)
        assert job.status == "done"
    await plain.close()


def test_closed_it_opens_again(plain: Mulligan) -> None:
    """close ends the background thread; the next call starts a new one and opens the store again."""
    before = {thread for thread in threading.enumerate() if thread.name == "mulligan-sync"}
    plain.sync.enqueue("double", args=[1])
    [background] = {thread for thread in threading.enumerate() if thread.name == "mulligan-sync"} - before
    plain.sync.close()
    background.join(5)
    assert not background.is_alive()
    plain.sync.close()
    assert plain.sync.status()["q"].ready == 1


def test_a_handler_may_use_sync_from_its_thread(plain: Mulligan) -> None:
    """A sync handler, which runs in a thread of its own, may enqueue more work by blocking calls."""

    @plain.task(queue="q")
    def parent() -> str:
        child = plain.sync.enqueue("double", args=[4])
        return child.id if isinstance(child, SyncHandle) else ""

    async def serve() -> int:
        async with plain.worker() as worker:
            handle = await parent.enqueue()
            child = await handle.result(timeout=10)
            await worker.drain()
            result = (await plain.get(child)).result
        await plain.close()
        return int(result)

    assert asyncio.run(serve()) == 8
