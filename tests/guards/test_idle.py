"""A worker that has nothing to do asks for nothing but what it must, and a job that comes then costs one claim and one settle."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import url_of
from tests.guards.counted_store import Calls, CountedStore
from tests.guards.scene import JOBS, Scene
from tests.virtual import Stage, play

MINUTE_S = 60
# The loops of a worker and how often each may ask in a minute: their pauses are drawn from the last tenth, so that fleets do not march.
IN_A_MINUTE = {
    "claim": 61,  # the poll, once a second; hints wake it earlier, and there are none
    "overdue": 68,  # the sweeper
    "schedules": 68,
    "notes": 68,  # settings and breakers of the fleet
    "renew": 7,  # the worker's sign of life
    "prune": 6,  # three statuses, each time
    "record_events": 1,  # that it has stopped
}


def counted(stage: Stage) -> Calls:
    """Counts what the stage's worker asks of the store from now on."""
    store = CountedStore(stage.app.store)
    stage.app.store = store  # type: ignore[assignment]
    return store.calls


def test_an_idle_worker_hardly_asks(backend: str, tmp_path: Path) -> None:
    """In a minute without jobs: a poll each second, the chores at their pace, and no other call."""

    async def scene(stage: Stage) -> Counter[str]:
        calls = counted(stage)
        async with stage.worker():
            await asyncio.sleep(5)
            calls.reset()
            await asyncio.sleep(MINUTE_S)
        return calls.by_name

    found = play(backend, tmp_path, scene)
    print(f"{backend}: {dict(found)}")
    assert {name: calls for name, calls in found.items() if calls > IN_A_MINUTE.get(name, 0)} == {}


def test_a_job_on_an_idle_worker_takes_one_claim_and_one_settle(backend: str, tmp_path: Path) -> None:
    """It is claimed at once, because a hint came and not a poll, and settled alone; nothing more is asked until the next poll."""

    async def scene(stage: Stage) -> tuple[Calls, float]:
        calls = counted(stage)
        started = asyncio.Event()

        @stage.app.task
        async def noop() -> None:
            started.set()

        async with stage.worker(poll=60.0):
            await asyncio.sleep(5)
            calls.reset()
            enqueued_s = stage.elapsed_s
            await noop.enqueue()
            await started.wait()
            waited_s = stage.elapsed_s - enqueued_s
            await asyncio.sleep(5)
            return calls, waited_s

    calls, waited_s = play(backend, tmp_path, scene)
    assert (calls.full_claims, calls.settled) == ([1], [1])
    assert len(calls.claimed) <= 2  # a process that enqueues may hear its own hint once more, from the server
    assert waited_s < 1  # of 60, virtually


@pytest.mark.parametrize("ahead", [0, 50])
async def test_a_claim_reaches_no_further_than_it_may(backend: str, tmp_path: Path, ahead: int) -> None:
    """However short the jobs are, no claim asks for more than the free slots and what `ahead` allows, and no more are held unstarted."""
    slots = 100
    async with Scene(url_of(backend, tmp_path)) as scene:
        waiting = 0

        @scene.app.task
        async def look() -> None:
            nonlocal waiting
            waiting = max(waiting, worker.executor.waiting)

        await scene.app.enqueue_many([look.job() for _ in range(JOBS)])
        async with scene.app.worker(concurrency=slots, ahead=ahead) as worker:
            await worker.drain()
        assert max(scene.calls.asked) <= slots + ahead
        assert waiting < slots + ahead
