from __future__ import annotations

import pytest

from mulligan.core.clock import SECOND_US, ManualClock
from mulligan.core.contract import Ask
from mulligan.stores.sqlite import SQLiteStore
from mulligan.stores.sqlite import claim as claiming
from tests.builders import ask, claim, claim_one, done, fifo, new_job, retry, us


async def ids(store: SQLiteStore, *asks: Ask, total: int = 1_000) -> list[str]:
    return [job.id for job in (await claim(store, *asks, total=total)).jobs]


async def marked(store: SQLiteStore) -> int:
    [count] = await store._write(lambda t: t.row("SELECT count(*) FROM mulligan_jobs WHERE ready = 1"))
    return int(count)


async def test_claim_by_creation_marks_a_bounded_number(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each claim in the order of creation marks at most so many due jobs, and the order among those is exact."""
    monkeypatch.setattr(claiming, "READY_MAX", 10)
    jobs = [new_job(eta_us=100 - place) for place in range(25)]  # the newest fell due first
    await store.insert(jobs)
    first = await ids(store, fifo(), total=5)
    assert first == [job.id for job in jobs[15:20]]  # the oldest of the ten that fell due first
    assert await marked(store) == 5
    rest: list[str] = []
    while taken := await ids(store, fifo(), total=5):
        rest += taken
    assert sorted(first + rest) == sorted(job.id for job in jobs)


async def test_change_of_strategy_finds_marked_jobs(store: SQLiteStore, clock: ManualClock) -> None:
    """Jobs that a claim by creation marked are served to a claim by run_at in the right order, and lose their marks."""
    jobs = [new_job(eta_us=1_000 - place) for place in range(6)]
    await store.insert(jobs)
    assert await ids(store, fifo(), total=1) == [jobs[0].id]
    assert await marked(store) == 5
    newest = new_job(eta_us=1)
    await store.insert([newest])
    assert await ids(store, ask(), total=3) == [newest.id, jobs[5].id, jobs[4].id]
    assert await marked(store) == 0
    assert await ids(store, ask(lane=None)) == [jobs[3].id, jobs[2].id, jobs[1].id]


async def test_both_orders_in_one_claim(store: SQLiteStore) -> None:
    """A queue that is asked for by creation and by run_at at once gives each its own line, and no job twice."""
    jobs = [new_job(eta_us=1_000 - place) for place in range(6)]
    await store.insert(jobs)
    by_creation = Ask(queue="q", lane=None, priority=0, guaranteed=2, order="created_at")
    by_time = Ask(queue="q", lane="fresh", priority=0, guaranteed=2)
    assert await ids(store, by_time, by_creation, total=4) == [jobs[5].id, jobs[4].id, jobs[0].id, jobs[1].id]
    assert await ids(store, by_creation, by_time) == [jobs[2].id, jobs[3].id]


async def test_marked_job_that_is_not_due_any_more_stays(store: SQLiteStore, clock: ManualClock) -> None:
    """If the clock is set back after a job was marked, it is not claimed early."""
    job = new_job(delay_s=10)
    await store.insert([new_job(id="0"), job])
    clock.advance(10)
    assert len(await ids(store, fifo(), total=1)) == 1
    assert await marked(store) == 1
    clock.advance(-5)
    assert await ids(store, fifo()) == []
    clock.advance(5)
    assert await ids(store, fifo()) == [job.id]


async def test_idle_claims_by_creation_see_new_work(store: SQLiteStore, clock: ManualClock) -> None:
    """The look before the claim finds what the claim would find: new jobs, retries that fall due, jobs that are marked already."""
    assert await ids(store, fifo()) == []
    await store.insert([new_job()])
    held = await claim_one(store, fifo())
    await store.settle([retry(held, 10)])
    assert await ids(store, fifo()) == []
    answer = await claim(store, fifo())
    assert (answer.jobs, answer.next_due_us) == ([], clock.now_us() + us(10))
    clock.advance(10)
    await store._write(lambda t: t.run("UPDATE mulligan_jobs SET ready = 1"))
    assert await ids(store, fifo()) == [held.id]


async def test_more_asks_than_fit_one_statement(store: SQLiteStore) -> None:
    """A claim over many queues is answered like one over few."""
    queues = [f"queue-{number:02}" for number in range(40)]
    jobs = [new_job(queue) for queue in queues]
    await store.insert(jobs)
    await store.set_queue(queues[7], paused=True)
    asks = [ask(queue, guaranteed=1) for queue in reversed(queues)]
    assert await ids(store, *asks, total=100) == [job.id for job in reversed(jobs) if job.queue != queues[7]]
    assert await ids(store, *asks) == []
    await store.set_queue(queues[7], paused=False)
    assert await ids(store, *asks) == [jobs[7].id]


async def test_claim_ids_are_forgotten_after_an_hour(store: SQLiteStore, clock: ManualClock) -> None:
    """The memory of claim ids is bounded: those older than an hour go, the others stay."""

    async def known() -> int:
        [count] = await store._write(lambda t: t.row("SELECT count(*) FROM mulligan_claims"))
        return int(count)

    async def claim_often(times: int) -> None:
        await store.insert([new_job() for _ in range(times)])
        for _ in range(times):
            await store.settle([done(await claim_one(store, Ask(queue="q", lane="fresh", priority=0, guaranteed=1)))])

    async def claim_one(store: SQLiteStore, one: Ask):  # type: ignore[no-untyped-def]
        [job] = (await claim(store, one, total=1)).jobs
        return job

    await claim_often(100)
    assert await known() == 100
    clock.advance(3_500)
    await claim_often(100)
    assert await known() == 200
    clock.advance(200)
    await claim_often(64)
    assert await known() == 164


async def test_repeat_returns_the_jobs_in_their_first_order(store: SQLiteStore) -> None:
    """A repeated claim returns what it still holds in the order in which it was first returned."""
    first, second, third = new_job(), new_job(priority=2), new_job(priority=1)
    await store.insert([first, second, third])
    asks = [ask(priority=priority) for priority in (2, 1, 0)]
    taken = await claim(store, *asks, claim_id="c")
    assert [job.id for job in taken.jobs] == [second.id, third.id, first.id]
    assert (await claim(store, *asks, claim_id="c")).jobs == taken.jobs
    await store.settle([done(taken.jobs[1])])
    assert (await claim(store, *asks, claim_id="c")).jobs == [taken.jobs[0], taken.jobs[2]]
    assert us(1) == SECOND_US
