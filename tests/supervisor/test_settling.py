"""What is settled for the dead, on a store that fails: one by one, against the memory model."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mulligan import Mulligan, RetryPolicy
from mulligan.core.contract import Store
from mulligan.core.errors import StoreRejected
from mulligan.core.job import Job
from mulligan.worker.cells import monotonic_us
from mulligan.worker.child import Child
from mulligan.worker.deaths import Deaths, Kind, Loss
from mulligan.worker.link import Holding
from mulligan.worker.policies import Policies
from mulligan.worker.registry import Registry
from mulligan.worker.solo_line import COME_AGAIN_US, COME_SOON_US, LINE_MAX, SoloLine
from tests.builders import claim, done, get, new_job
from tests.faults import FaultyStore


@pytest.fixture
async def app() -> AsyncIterator[Mulligan]:
    """An app whose memory store the test may use."""
    async with Mulligan("memory://") as app:
        yield app


def deaths(app: Mulligan, store: Any) -> Deaths:
    return Deaths(store, Policies(Registry(()), {}, RetryPolicy()), app.events, random.Random(1))


def loss(job: Job, kind: Kind, **more: Any) -> Loss:
    return Loss(job.id, job.fence, kind, "its process died", **more)


async def held(store: Store, count: int = 1) -> list[Job]:
    await store.insert([new_job() for _ in range(count)])
    return (await claim(store, total=count, owner="dead")).jobs


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_store_that_fails_is_asked_again_with_the_same_ids(app: Mulligan, when: Any) -> None:
    """Calls that fail, and answers that are lost, are repeated: each job is charged one crash, and one event tells of it."""
    store = FaultyStore(app.store)
    jobs = await held(app.store, 3)
    for call in ("get", "settle"):
        store.fail(call, times=2, when=when)
    assert await deaths(app, store).settle([loss(job, "crash", started_us=monotonic_us()) for job in jobs], "dead") == 3
    for job in jobs:
        after = await get(app.store, job.id)
        assert (after.status, after.crashes, after.attempts) == ("pending", 1, 1)
        assert len(app.events.recent(kind="CRASHED", job_id=job.id)) == 1


async def test_what_the_dead_had_written_stays(app: Mulligan) -> None:
    """A job whose outcome was stored before the process died, and one that another holds by now, are left alone, without an event."""
    [finished, taken, own] = await held(app.store, 3)
    stale = Loss(taken.id, taken.fence - 1, "crash", "its process died")
    await app.store.settle([done(finished)])
    assert await deaths(app, app.store).settle([loss(finished, "crash"), stale, loss(own, "release")], "dead") == 1
    assert [(await get(app.store, job.id)).status for job in (finished, taken, own)] == ["done", "processing", "pending"]
    assert app.events.recent(kind="LEASE_LOST") == []


async def test_one_refused_outcome_does_not_hold_up_the_others(app: Mulligan) -> None:
    """What the store refuses for good is left to its lease; the rest of the batch is settled."""
    store = FaultyStore(app.store)
    jobs = await held(app.store, 3)
    store.fail("settle", times=2, error=StoreRejected("injected: not this one"))
    assert await deaths(app, store).settle([loss(job, "release") for job in jobs], "dead") == 2


async def test_patience_ends_when_nobody_waits_any_longer(app: Mulligan) -> None:
    """A supervisor that ends does not wait for ever for a store that is away."""
    store = FaultyStore(app.store)
    jobs = await held(app.store)
    store.fail("get", times=1_000_000)
    settler = deaths(app, store)
    settling = asyncio.create_task(settler.settle([loss(job, "release") for job in jobs], "dead"))
    while store.calls["get"] < 3:
        await asyncio.sleep(0)
    settler.give_up.set()
    assert await settling == 0


async def test_nothing_is_tried_one_by_one_when_nobody_waits_any_longer(app: Mulligan) -> None:
    """A store that takes no writes: the last try of the whole batch is the last one."""
    store = FaultyStore(app.store)
    jobs = await held(app.store, 100)
    store.fail("settle", times=1_000_000)
    settler = deaths(app, store)
    settler.give_up.set()
    assert await settler.settle([loss(job, "release") for job in jobs], "dead") == 0
    assert store.calls["settle"] == 1


def line_of(app: Mulligan) -> SoloLine:
    """A line that starts no process by itself."""

    def begin() -> Child:
        raise AssertionError("no process is to be started here")

    return SoloLine(app.store, deaths(app, app.store), begin, lambda child: None)


async def delay_us(app: Mulligan, job: Job) -> int:
    """For how long a job was given back, uncounted."""
    after = await get(app.store, job.id)
    assert (after.status, after.attempts, after.releases) == ("pending", 0, 1)
    assert after.run_at_us is not None
    return after.run_at_us - after.updated_at_us


async def test_no_job_waits_for_a_process_to_start(app: Mulligan) -> None:
    """If the supervisor died meanwhile, it would be charged its last crash without a start: it comes again a moment later."""
    jobs = await held(app.store, 2)
    line = line_of(app)
    line.add([Holding(-1, job.id, job.fence) for job in jobs], "dead")
    assert len(line) == 0
    await line.close()
    assert [await delay_us(app, job) for job in jobs] == [COME_SOON_US] * 2


async def test_a_full_line_gives_jobs_back(app: Mulligan) -> None:
    """Of the jobs that have to run alone a bounded number waits; the others come again later, uncounted."""
    jobs = await held(app.store, LINE_MAX + 2)
    line = line_of(app)
    line.child = Child(0, [sys.executable, "-c", "import signal; signal.pause()"], 1, lambda _child, _jobs: None)
    line.child.name = "alone"
    line.add([Holding(-1, job.id, job.fence) for job in jobs], "dead")
    assert [grip.job_id for grip in line.grips()] == [job.id for job in jobs[:LINE_MAX]]
    await line.close()
    assert [await delay_us(app, job) for job in jobs[LINE_MAX:]] == [COME_AGAIN_US] * 2
    assert [await delay_us(app, job) for job in jobs[:LINE_MAX]] == [0] * LINE_MAX
    line.child.kill()
    await line.child.ended
    line.child.close()
