"""The connections a worker has on its own loop: used by it, and as safe as the store's own."""

from __future__ import annotations

import asyncio
import time

import pytest

from mulligan import Mulligan
from mulligan.core.clock import ManualClock
from mulligan.core.errors import IllegalMove
from mulligan.stores.postgres import PostgresStore, from_url
from tests.builders import LEASE_S, ask, done, fresh_id, get, new_job, retry, us


async def test_a_worker_claims_and_settles_near(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one claim or settle of a running worker goes through the store's thread; without a worker its connections are gone."""

    async def never(*_: object) -> None:
        raise AssertionError("through the thread")

    async with Mulligan(url) as app:

        @app.task
        async def work() -> str:
            return "done"

        monkeypatch.setattr(app.store, "claim", never)
        monkeypatch.setattr(app.store, "settle", never)
        async with app.worker() as worker:
            near = worker._near
            assert near is not None
            handle = await work.enqueue()
            assert await handle.result(timeout=30) == "done"
            assert near._database.pool.size in (1, 2)
        assert near._database.pool.size == 0


async def test_near_and_far_are_one_store(real: PostgresStore) -> None:
    """What is claimed on one side is held on the other, and what is put back on one is claimed on the other."""
    near = await real.near()
    assert near is not None
    await real.insert([new_job() for _ in range(3)])
    here = (await near.claim(fresh_id(), "here", [ask()], 2, us(LEASE_S))).jobs
    there = (await real.claim(fresh_id(), "there", [ask()], 2, us(LEASE_S))).jobs
    assert (len(here), len(there)) == (2, 1)
    listener = real.listen()
    verdicts = await near.settle([done(here[0]), retry(here[1]), done(there[0])])
    assert [verdict.applied for verdict in verdicts] == [True] * 3
    assert await listener.wait(5)  # a job that waits again is announced
    listener.close()
    [again] = (await real.claim(fresh_id(), "there", [ask(lane="retry")], 2, us(LEASE_S))).jobs
    assert (again.id, again.fence) == (here[1].id, 2)
    assert [verdict.reason for verdict in await near.settle([done(here[1])])] == ["stale"]
    assert (await get(real, here[0].id)).status == "done"
    await near.close()


async def test_a_loop_that_was_held_up_does_not_take_an_answer_for_silence(url: str) -> None:
    """A handler that blocks the loop for longer than a call may take: the answer is there all the while, and counts."""
    store = from_url(f"{url}&timeout=1")
    await store.open()
    try:
        near = await store.near()
        assert near is not None
        await store.insert([new_job()])
        await near.claim(fresh_id(), "me", [ask()], 1, us(LEASE_S))  # the connection stands
        await store.insert([new_job()])
        under_way = asyncio.create_task(near.claim(fresh_id(), "me", [ask()], 1, us(LEASE_S)))
        for _ in range(5):
            await asyncio.sleep(0)  # the question is on its way
        time.sleep(2)
        assert len((await under_way).jobs) == 1
        await near.close()
    finally:
        await store.close()


async def test_a_closed_store_has_no_near_side(real: PostgresStore) -> None:
    """After the store was closed, its near side says so."""
    near = await real.near()
    assert near is not None
    await real.close()
    with pytest.raises(IllegalMove, match="not open"):
        await near.settle([])
    await near.close()


async def test_a_clock_of_a_test_keeps_everything_in_the_thread(store: PostgresStore, clock: ManualClock) -> None:
    """On a clock of a test's own time must not pass while the server works, which only the thread can tell."""
    assert clock.now_us() > 0
    assert await store.near() is None
