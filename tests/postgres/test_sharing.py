from __future__ import annotations

import asyncio
from collections.abc import Callable

import asyncpg
import pytest

from mulligan.core.clock import Clock
from mulligan.core.job import Job
from mulligan.stores.postgres import PostgresStore
from tests.builders import ask, claim, done, fifo, new_job
from tests.postgres.conftest import Raw

JOBS = 2_000


async def drain(store: PostgresStore, fair: bool) -> tuple[list[Job], int]:
    """Claims and settles until nothing is left; what was claimed, and how many claims were empty before that."""
    taken: list[Job] = []
    empty = 0
    while empty < 3:
        asks = [ask(), ask(lane="retry")] if fair else [fifo()]
        jobs = (await claim(store, *asks, total=25)).jobs
        taken += jobs
        empty += not jobs
        verdicts = await store.settle([done(job) for job in jobs])
        assert all(verdict.applied for verdict in verdicts)
    return taken, empty


async def share(make: Callable[[Clock | None], PostgresStore], *, fair: bool) -> list[list[Job]]:
    """Eight claimers on four stores drain one queue together."""
    stores = [make(None) for _ in range(4)]
    await asyncio.gather(*(store.open() for store in stores))
    try:
        await stores[0].insert([new_job() for _ in range(JOBS)])
        ends = await asyncio.gather(*(drain(stores[number % 4], fair) for number in range(8)))
        [queue] = (await stores[1].stats()).queues
        assert (queue.done, queue.processing, queue.fresh_ready) == (JOBS, 0, 0)
        return [taken for taken, _ in ends]
    finally:
        await asyncio.gather(*(store.close() for store in stores))


async def test_no_job_goes_to_two_claimers(make: Callable[[Clock | None], PostgresStore]) -> None:
    """Every job is claimed exactly once, under its first fence, and nobody goes home empty while others find plenty."""
    hauls = await share(make, fair=True)
    ids = [job.id for haul in hauls for job in haul]
    assert len(ids) == len(set(ids)) == JOBS
    assert {job.fence for haul in hauls for job in haul} == {1}
    assert all(hauls)


async def test_no_job_goes_to_two_claimers_in_the_order_of_creation(make: Callable[[Clock | None], PostgresStore]) -> None:
    """The same for claims that mark jobs first."""
    hauls = await share(make, fair=False)
    ids = [job.id for haul in hauls for job in haul]
    assert len(ids) == len(set(ids)) == JOBS


async def test_one_claim_made_twice_at_once_takes_its_jobs_once(real: PostgresStore) -> None:
    """A repeat that overtakes its first try gets the same jobs, not others."""
    await real.insert([new_job() for _ in range(100)])
    for number in range(10):
        first, second = await asyncio.gather(
            claim(real, ask(), total=5, claim_id=f"c{number}"), claim(real, ask(), total=5, claim_id=f"c{number}")
        )
        assert [job.id for job in first.jobs] == [job.id for job in second.jobs]
    [queue] = (await real.stats()).queues
    assert (queue.processing, queue.fresh_ready) == (50, 50)


async def test_batches_in_opposite_orders_do_not_stop_each_other(real: PostgresStore) -> None:
    """Settles, cancels and renewals of the same jobs in opposite orders all end, with one of them applied to each job."""
    await real.insert([new_job() for _ in range(200)])
    jobs = (await claim(real, ask(), total=200)).jobs
    forth, back = [done(job) for job in jobs], [done(job) for job in reversed(jobs)]
    ids = [job.id for job in jobs]
    one, two, *_ = await asyncio.gather(real.settle(forth), real.settle(back), real.request_cancel(ids), real.request_cancel(ids[::-1]))
    applied = [verdict.job_id for verdict in [*one, *two] if verdict.applied]
    assert sorted(applied) == sorted(ids)


async def test_events_become_visible_in_their_order(real: PostgresStore, server_url: str, schema: str) -> None:
    """A reader that goes on from the newest event it has seen never misses one, though writers commit at different speeds."""
    slow = await asyncpg.connect(server_url)
    transaction = slow.transaction()
    await transaction.start()
    await slow.execute(
        f'SELECT "{schema}".add_events(NULL, ARRAY[$$[{{"kind":"QUEUE_PAUSED","at_us":1,"queue":"slow"}}]$$], ARRAY[1], 10000)'
    )
    writing = asyncio.create_task(real.set_queue("quick", paused=True))
    done_early, _ = await asyncio.wait([writing], timeout=0.3)
    assert not done_early
    assert await real.read_events(0, 10) == []
    await transaction.commit()
    await writing
    assert [event.queue for event in await real.read_events(0, 10)] == ["slow", "quick"]
    await slow.close()


async def test_an_unusual_claim_passes_over_locked_jobs_round_after_round(store: PostgresStore, raw: Raw) -> None:
    """Asks of both lanes by run_at list their jobs first; the heads that others hold are passed over, however many rounds that takes."""
    jobs = [new_job() for _ in range(6)]
    await store.insert(jobs)
    with raw.connection.transaction():
        raw.run("SELECT 1 FROM {s}.jobs ORDER BY run_at_us, id LIMIT 4 FOR UPDATE")
        taken = await claim(store, ask("q", None), total=1)
    assert [job.id for job in taken.jobs] == [jobs[4].id]


async def test_inserts_of_the_same_keys_in_any_order_do_not_wait_for_each_other(
    real: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two batches with the same unique keys, one forwards and one backwards, at the same time, again and again: never a deadlock."""
    monkeypatch.setattr("mulligan.stores.postgres.database.CONFLICT_REPEATS", 0)  # so that one would be told,
    monkeypatch.setattr("mulligan.stores.network.store.REPEATS", 0)  # and not repeated

    async def insert(number: int, keys: list[int]) -> int:
        answers = await real.insert([new_job(unique_key=f"{number}-{key}") for key in keys])
        return sum(answer.created for answer in answers)

    for number in range(5):
        keys = list(range(2_000))  # many, so that each batch is written by itself
        created = await asyncio.gather(*(insert(number, order) for order in (keys, keys[::-1])))
        assert sum(created) == 2_000
