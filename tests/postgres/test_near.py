"""The connections a worker has on its own loop: used by it, and as safe as the store's own."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from mulligan import Constant, Mulligan, RetryPolicy
from mulligan.core.change import Held
from mulligan.core.clock import ManualClock
from mulligan.core.errors import IllegalMove
from mulligan.core.events import Event
from mulligan.stores.postgres import PostgresStore, from_url
from mulligan.stores.postgres.at_once import settle_at_once
from tests.builders import LEASE_S, ask, done, fresh_id, get, new_job, retry, us
from tests.postgres.conftest import Raw


async def test_a_worker_claims_and_settles_near(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one claim or settle of a running worker, failures too, goes through the store's thread; without a worker its
    connections are gone."""

    times_run = []

    async def never(*_: object) -> None:
        raise AssertionError("through the thread")

    async with Mulligan(url) as app:

        @app.task(retry=RetryPolicy(backoff=Constant(delay=0.001)))
        async def work() -> str:
            times_run.append(1)
            if len(times_run) < 3:
                raise ConnectionError
            return "done"

        monkeypatch.setattr(app.store, "claim", never)
        monkeypatch.setattr(app.store, "settle", never)
        monkeypatch.setattr("mulligan.stores.postgres.settle.settle_in_steps", never)  # what a settle falls back to
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


async def test_a_batch_that_one_statement_cannot_write_is_not_tried_again(real: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server writes and takes back all of it for nothing once, not twice."""
    tried = []

    async def counted(*given: Any) -> Any:
        tried.append(1)
        return await settle_at_once(*given)

    monkeypatch.setattr("mulligan.stores.postgres.near.settle_at_once", counted)
    monkeypatch.setattr("mulligan.stores.postgres.settle.settle_at_once", counted)
    near = await real.near()
    assert near is not None
    await real.insert([new_job() for _ in range(2)])
    jobs = (await near.claim(fresh_id(), "me", [ask()], 2, us(LEASE_S))).jobs
    listener = real.listen()
    verdicts = await near.settle([retry(jobs[0]), done(jobs[1], guard=Held(0))])
    assert [verdict.applied for verdict in verdicts] == [True, False]
    assert len(tried) == 1
    assert await listener.wait(5)
    listener.close()
    await near.close()


@pytest.mark.parametrize("is_held", [True, False])
async def test_a_batch_with_failures_leaves_no_transaction_to_a_loop_that_is_held_up(real: PostgresStore, url: str, is_held: bool) -> None:
    """It is settled by one statement, or by the store's thread: while a handler blocks this loop, others can still write to the log of
    events."""
    near = await real.near()
    assert near is not None

    def hold_up_until(written: threading.Event) -> bool:
        return written.wait(10)  # blocks this loop

    def write_an_event(written: threading.Event) -> None:
        async def write() -> None:
            store = from_url(url)
            await store.open()
            await store.record_events([Event(kind="QUEUE_PAUSED", at_us=1)])
            await store.close()
            written.set()

        asyncio.run(write())

    for turns in range(12):  # whatever step the settle has come to
        await real.insert([new_job() for _ in range(2)])
        jobs = (await near.claim(fresh_id(), "me", [ask()], 2, us(LEASE_S))).jobs
        written = threading.Event()
        guard = Held(jobs[0].fence if is_held else 0)
        settling = asyncio.create_task(near.settle([done(jobs[0], guard=guard), retry(jobs[1])]))
        for _ in range(turns):
            await asyncio.sleep(0)
        other = threading.Thread(target=write_an_event, args=(written,))
        other.start()
        assert hold_up_until(written)
        other.join()
        assert [verdict.applied for verdict in await settling] == [is_held, True]
    await near.close()


async def test_a_row_that_cannot_be_decoded_is_quarantined_all_the_same(real: PostgresStore, raw: Raw) -> None:
    """The others of the claim are answered, and the damaged one is failed."""
    near = await real.near()
    assert near is not None
    good, bad = [answer.id for answer in await real.insert([new_job(), new_job()])]
    raw.run("UPDATE {s}.jobs SET tags = 'damaged' WHERE id = %s", (bad,))
    taken = await near.claim(fresh_id(), "me", [ask()], 5, us(LEASE_S))
    assert [job.id for job in taken.jobs] == [good]
    assert (await get(real, bad)).status == "failed"
    await near.close()


async def test_behind_a_pooler_there_is_no_near_side(url: str) -> None:
    """There a claim is a transaction of several steps, and must not depend on a loop that may be held up."""
    store = from_url(f"{url}&pgbouncer=on")
    await store.open()
    assert await store.near() is None
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
