"""Servers that go away in the middle of work, and come back: nothing is lost, nothing runs again, and no restart is needed."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from mulligan import Mulligan, StoreUnavailable
from mulligan.stores import open_store
from tests.cli.commands import ended, line_with, started
from tests.outages.drain import Drain, option, place
from tests.servers import Proxy, Server

torture = [pytest.mark.torture, pytest.mark.timeout(1_800)]


@pytest.mark.parametrize("restarts", [2, pytest.param(50, marks=torture)])
async def test_a_server_stopped_and_started_again_in_the_middle(running: Server, restarts: int) -> None:
    """Killed at once and started again while a worker drains and a producer enqueues (faults 48, 58): all goes on by itself."""
    drain = Drain(place(running.url))
    async with drain.worker() as worker:
        producer = asyncio.create_task(drain.produce(100 * restarts + 200, pause_s=0.002))
        for number in range(restarts):
            await drain.until_completed(80 * number + 50)
            await asyncio.to_thread(running.stop, immediate=True)
            await asyncio.sleep(0.3)
            await asyncio.to_thread(running.start)
        await producer
        await drain.until_completed(len(drain.accepted))
        await worker.drain()
        await drain.check()
    assert drain.events["STORE_DEGRADED"] == drain.events["STORE_RECOVERED"]
    await drain.app.close()


@pytest.mark.parametrize("resets", [20, pytest.param(1_000, marks=torture)])
async def test_connections_reset_again_and_again(running: Server, proxy: Proxy, resets: int) -> None:
    """Every connection is broken every few milliseconds (faults 64, 68): each job still runs once, and none is lost."""
    drain = Drain(proxy.url_of(place(running.url)))
    async with drain.worker() as worker:
        producer = asyncio.create_task(drain.produce(15 * resets, pause_s=0.001))
        for _ in range(resets):
            await asyncio.sleep(0.04)
            proxy.reset()
        await producer
        await drain.until_completed(len(drain.accepted))
        await worker.drain()
        await drain.check()
    await drain.app.close()


async def test_half_open_connections_are_noticed(running: Server, proxy: Proxy) -> None:
    """A network that swallows everything (fault 65): calls fail within the deadline instead of hanging, and go on when it speaks."""
    drain = Drain(proxy.url_of(option(place(running.url), "timeout=1")))
    async with drain.worker() as worker:
        await drain.produce(50)
        await drain.until_completed(50)
        proxy.go_silent()
        async with asyncio.timeout(15):
            with pytest.raises(StoreUnavailable):
                await drain.work.enqueue(0.0)
            while drain.events["STORE_DEGRADED"] == 0:
                await asyncio.sleep(0.05)
        proxy.speak_again()
        await drain.produce(50)
        await drain.until_completed(100)
        await worker.drain()
    stored = [job async for job in drain.app.jobs()]
    assert {job.status for job in stored} == {"done"}
    assert drain.reruns == []
    await drain.app.close()


async def test_a_server_that_is_down_at_first(running: Server, proxy: Proxy) -> None:
    """Opening says where nobody answers; the same store opens as soon as somebody does."""
    proxy.refuse()
    proxy.reset()
    store = open_store(proxy.url_of(option(place(running.url), "timeout=1")))
    with pytest.raises(StoreUnavailable, match=str(proxy.port)):
        await store.open()
    proxy.accept_again()
    await store.open()
    assert await store.now_us() > 0
    await store.close()


PROGRAM = """
from mulligan import Mulligan
app = Mulligan({url!r})

@app.task
async def hello(name):
    print(f"hello {{name}}", flush=True)
"""


async def test_a_worker_that_starts_before_its_server_waits_for_it(running: Server, proxy: Proxy, tmp_path: Path) -> None:
    """`mulligan worker` says that nobody answers, keeps trying, and works as soon as somebody does (fault 69)."""
    url = place(running.url)
    proxy.refuse()
    (tmp_path / "early.py").write_text(PROGRAM.format(url=option(proxy.url_of(url), "timeout=1")))
    with started("worker", "early:app", folder=tmp_path) as process:
        await asyncio.to_thread(line_with, process, "does not answer, trying again", err=True)
        proxy.accept_again()
        async with Mulligan(url) as app:
            app.declare("hello")
            await app.enqueue("hello", args=["world"])
            await asyncio.to_thread(line_with, process, "hello world")
        process.send_signal(signal.SIGTERM)
        assert (await asyncio.to_thread(ended, process)).code == 0
