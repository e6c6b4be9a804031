"""A worker with its default settings crosses to its store in wide batches: claims, settles and inserts for a thousand jobs are few."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mulligan.core.contract import Width
from tests.conftest import BACKENDS, DURABLE, url_of
from tests.guards.scene import ATTEMPTS, JOBS, Scene

# The fewest come from a store that takes time to answer (4 or 5 claims of a thousand jobs); one that answers at once is claimed from
# as often as its slots are free, which is 10 or 11 times. One job at a time would be a thousand.
CALLS_PER_1000 = 20
CHORES_MAX = 60  # all other calls, from the start of a worker to its end: none of them may grow with the jobs


def per_1000(calls: int, jobs: int) -> float:
    return calls * 1_000 / jobs


async def test_a_drain_takes_few_calls(backend: str, tmp_path: Path) -> None:
    """Two thousand jobs that do nothing: at most 20 claims and 20 settles for a thousand of them, and nothing else for each."""
    async with Scene(url_of(backend, tmp_path)) as scene:
        await scene.fill()
        scene.calls.reset()
        await scene.drain()
        calls = scene.calls
    print(f"{backend}: {len(calls.claimed)} claims {calls.claimed}, {len(calls.settled)} settles {calls.settled}")
    assert sum(calls.claimed) == sum(calls.settled) == JOBS
    assert per_1000(len(calls.claimed), JOBS) <= CALLS_PER_1000
    assert per_1000(len(calls.settled), JOBS) <= CALLS_PER_1000
    assert calls.by_name.total() - len(calls.claimed) - len(calls.settled) <= CHORES_MAX


async def test_the_store_says_how_wide_calls_become(backend: str, tmp_path: Path) -> None:
    """A worker whose settings do not say it asks for what its store names as its width; numbers of its own count more."""
    slots, narrow = 100, Width(ahead=50, batch=20)
    async with Scene(url_of(backend, tmp_path)) as scene:
        scene.store.width = narrow
        await scene.fill()
        scene.calls.reset()
        await scene.drain(concurrency=slots)
        assert max(scene.calls.asked) <= slots + narrow.ahead
        assert max(scene.calls.settled) == narrow.batch
        await scene.fill()
        scene.calls.reset()
        await scene.drain(concurrency=slots, ahead=0, batch=10)
        assert max(scene.calls.asked) == slots
        assert max(scene.calls.settled) == 10


# The memory store answers before a job could end, so that there is no reason to reach ahead.
@pytest.mark.parametrize("durable", [name for name in BACKENDS if name in DURABLE])
async def test_one_slot_takes_few_calls_too(durable: str, tmp_path: Path) -> None:
    """A single slot is through with all it has before the next claim is sent; claims grow wide all the same, after a narrow beginning."""
    async with Scene(url_of(durable, tmp_path)) as scene:
        await scene.fill()
        scene.calls.reset()
        await scene.drain(concurrency=1)
        claimed = scene.calls.claimed
    print(f"{durable}: {len(claimed)} claims {claimed}")
    assert sum(claimed) == JOBS
    assert per_1000(len(claimed), JOBS) <= 5 * CALLS_PER_1000


async def test_a_retry_storm_takes_few_calls(backend: str, tmp_path: Path) -> None:
    """Failures are written in the same wide batches as successes, and their retries are claimed in them."""
    jobs, attempts = JOBS // 2, JOBS // 2 * ATTEMPTS
    async with Scene(url_of(backend, tmp_path)) as scene:
        await scene.fill(jobs, "storm")
        scene.calls.reset()
        await scene.drain()
        calls = scene.calls
    print(f"{backend}: {len(calls.claimed)} claims {calls.claimed}, {len(calls.settled)} settles {calls.settled}")
    assert sum(calls.claimed) == sum(calls.settled) == attempts
    assert per_1000(len(calls.full_claims), attempts) <= CALLS_PER_1000
    assert per_1000(len(calls.settled), attempts) <= CALLS_PER_1000
    # Between two waves of retries nothing is due for a moment, so some claims find nothing; more than that would be a busy loop.
    assert per_1000(len(calls.claimed), attempts) <= 2 * CALLS_PER_1000
    assert calls.by_name.total() - len(calls.claimed) - len(calls.settled) <= CHORES_MAX


async def test_a_bulk_enqueue_takes_few_calls(backend: str, tmp_path: Path) -> None:
    """A thousand jobs enqueued together are one insert, and nothing else is asked of the store."""
    async with Scene(url_of(backend, tmp_path)) as scene:
        scene.calls.reset()
        await scene.fill(1_000)
        assert scene.calls.inserted == [1_000]
        assert set(scene.calls.by_name) == {"insert"}


async def test_a_slow_handler_does_not_widen_claims(backend: str, tmp_path: Path) -> None:
    """Jobs that outlast a claim are claimed for free slots only: nothing is held that cannot start."""
    slots = 5
    async with Scene(url_of(backend, tmp_path)) as scene:
        waiting = 0

        @scene.app.task
        async def slow() -> None:
            nonlocal waiting
            waiting = max(waiting, worker.executor.waiting)
            await asyncio.sleep(0.5)  # also longer than a claim of a store that everything else is slow on

        await scene.app.enqueue_many([slow.job() for _ in range(4 * slots)])
        async with scene.app.worker(concurrency=slots) as worker:
            await worker.drain()
        assert max(scene.calls.asked) <= slots
        assert waiting < slots
