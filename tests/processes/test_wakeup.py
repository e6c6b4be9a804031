"""An idle worker in another process starts a new job at once, and does not burn the processor to find out."""

from __future__ import annotations

import asyncio
import statistics
import time

import pytest

from mulligan import Handle, Mulligan
from tests.processes.children import Nursery

POLL_S = 30


@pytest.mark.parametrize("rounds", [30, pytest.param(1_000, marks=[pytest.mark.scale, pytest.mark.timeout(600)])])
async def test_an_idle_worker_of_another_process_starts_a_job_at_once(nursery: Nursery, app: Mulligan, rounds: int) -> None:
    """Enqueued one at a time, each job starts long before the next poll of the sleeping worker."""
    server = nursery.server(poll=POLL_S)
    waits_s = []
    for _ in range(rounds):
        handle: Handle[int] = await app.state.stamped.enqueue(time.monotonic_ns())
        waits_s.append(await handle.result(timeout=POLL_S / 2) / 1e9)
    server.finish()
    median_s = statistics.median(waits_s)
    print(f"from enqueue to start in another process: median {median_s * 1e3:.1f} ms, worst {max(waits_s) * 1e3:.1f} ms of {rounds}")
    assert median_s < 0.5
    assert max(waits_s) < POLL_S / 3


async def test_several_idle_workers_all_wake(nursery: Nursery, app: Mulligan) -> None:
    """A burst that one process alone would take long for is shared by all that slept."""
    servers = [nursery.server(poll=POLL_S, concurrency=1, ahead=0) for _ in range(3)]
    handles = await app.enqueue_many([app.state.slow.job(0.05) for _ in range(30)])
    pids = {await handle.result(timeout=POLL_S / 2) for handle in handles}
    for server in servers:
        server.finish()
    assert pids == {server.pid for server in servers}


async def test_a_retry_wakes_the_worker_when_it_falls_due(nursery: Nursery, app: Mulligan) -> None:
    """R05: an idle worker sleeps until the next job falls due, not until its next poll."""
    server = nursery.server(poll=POLL_S)
    handle = await app.state.quick.options(delay=0.5).enqueue(1)
    assert await handle.result(timeout=POLL_S / 2) == 1
    job = await handle.job()
    late_s = (job.finished_at_us or 0) / 1e6 - job.due_first_us / 1e6
    assert 0 <= late_s < 2
    server.finish()


async def test_an_idle_worker_does_not_poll_busily(nursery: Nursery, app: Mulligan) -> None:
    """Three idle seconds cost less than a tenth of them in processor time."""
    server = nursery.server(poll=POLL_S)
    before: Handle[float] = await app.enqueue("cpu_time")
    before_s = await before.result(timeout=POLL_S / 2)
    await asyncio.sleep(3)
    after: Handle[float] = await app.enqueue("cpu_time")
    used_s = await after.result(timeout=POLL_S / 2) - before_s
    server.finish()
    print(f"processor time of three idle seconds: {used_s * 1e3:.0f} ms")
    assert used_s < 0.3
