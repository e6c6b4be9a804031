from __future__ import annotations

import asyncio

import psycopg
from psycopg import sql

from mulligan.core.clock import ManualClock
from mulligan.core.contract import Ask
from mulligan.stores.postgres import PostgresStore
from mulligan.stores.postgres.floors import FULL_EVERY_US, LAG_US, Floors
from tests.builders import ask, claim, done, new_job, retry
from tests.postgres.conftest import Raw

DEAD = 20_000
LINE = ("q", "fresh", 0)
ENTRIES = "SELECT coalesce(sum(idx_tup_read), 0) FROM pg_stat_user_indexes WHERE relid = '{s}.jobs'::regclass AND indexrelname = 'jobs_due'"


def entries_read(raw: Raw) -> int:
    """How many entries of the index of due jobs were read since the beginning, by anybody who has reported it."""
    raw.run("SELECT pg_stat_clear_snapshot()")
    [[entries]] = raw.rows(ENTRIES)
    return int(entries)


async def flushed(store: PostgresStore) -> None:
    """Lets the store's connections end: a session reports what it has read at the latest then."""
    await store._call(lambda: store._db.pool.shrink())


async def test_pinned_dead_rows_do_not_slow_a_claim(store: PostgresStore, raw: Raw, server_url: str, clock: ManualClock) -> None:
    """While a forgotten transaction keeps dead entries alive, claims begin where the line was taken to, and do not cross them."""
    await store.insert([new_job() for _ in range(DEAD)])
    with psycopg.connect(server_url) as forgotten:
        forgotten.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        forgotten.execute("SELECT 1 FROM pg_class LIMIT 1").fetchone()
        raw.run("UPDATE {s}.jobs SET status = 'done', run_at_us = NULL, finished_at_us = 1")
        clock.advance(1)
        await store.insert([new_job() for _ in range(50)])
        await flushed(store)
        start = entries_read(raw)
        await claim(store, ask(), total=5)
        await flushed(store)
        without = entries_read(raw) - start
        for _ in range(2):  # the floor comes into use with the second one
            clock.advance(LAG_US / 1e6)
            await claim(store, ask(), total=5)
        await claim(store, ask(), total=5)  # made without, as one is now and then
        await flushed(store)
        start = entries_read(raw)
        taken = await claim(store, ask(), total=5)
        await flushed(store)
        beneath = entries_read(raw) - start
        assert len(taken.jobs) == 5
        assert without > DEAD
        assert beneath < DEAD / 100


async def test_a_job_behind_the_floor_is_served_first(store: PostgresStore, clock: ManualClock) -> None:
    """A job that is stored with a time in the past comes next, as on every store, although claims begin further on."""
    await store.insert([new_job() for _ in range(50)])
    for _ in range(3):
        await claim(store, ask(), total=5)
        clock.advance(1.1)
    assert store._floors.of([ask()]) == [0]  # now and then one is made without
    assert store._floors.of([ask()]) != [0]
    late = new_job(eta_us=clock.now_us() - 60_000_000)
    await store.insert([late])
    [first, _] = (await claim(store, ask(), total=2)).jobs
    assert first.id == late.id


async def test_a_job_of_a_slow_transaction_is_served_first(store: PostgresStore, server_url: str, clock: ManualClock) -> None:
    """A job that was inserted in somebody's transaction long before its commit is not left behind."""
    late = new_job()
    with psycopg.connect(server_url) as connection:
        store.insert_in(connection, [late])
        clock.advance(1)
        await store.insert([new_job() for _ in range(50)])
        for _ in range(3):
            await claim(store, ask(), total=5)
            clock.advance(1.1)
        assert store._floors.of([ask()]) == [0]  # now and then one is made without
        assert store._floors.of([ask()]) != [0]
    [first] = (await claim(store, ask(), total=1)).jobs
    assert first.id == late.id


async def test_a_requeued_claim_of_another_process_is_found_again(store: PostgresStore, raw: Raw, clock: ManualClock) -> None:
    """A row that comes back behind the floor by hand is served after at most the time between two claims without floors."""
    await store.insert([new_job() for _ in range(50)])
    [old, *others] = (await claim(store, ask(), total=5)).jobs
    await store.settle([done(job) for job in others])
    clock.advance(1.5)
    await claim(store, ask(), total=5)
    raw.run("UPDATE {s}.jobs SET status = 'pending', run_at_us = 1 WHERE id = %s", (old.id,))
    clock.advance(FULL_EVERY_US / 1e6)
    seen = [job.id for _ in range(2) for job in (await claim(store, ask(), total=5)).jobs]
    assert old.id in seen


async def test_a_retry_that_waited_for_a_lock_is_noted(real: PostgresStore, server_url: str, schema: str, raw: Raw) -> None:
    """It is written with a time from before the wait, and claims may have gone further meanwhile; one that did not wait needs no note."""
    await real.insert([new_job(), new_job()])
    first, second = (await claim(real, total=2)).jobs
    count = "SELECT count(*) FROM {s}.tallies WHERE status = 'past'"
    await real.settle([retry(first, 0)])
    assert raw.rows(count) == [(0,)]
    with psycopg.connect(server_url) as other:
        locked = sql.SQL("SELECT 1 FROM {s}.jobs WHERE id = %s FOR UPDATE").format(s=sql.Identifier(schema))
        other.execute(locked, (second.id,))
        settling = asyncio.create_task(real.settle([retry(second, 0)]))
        waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND %s = ANY (pg_blocking_pids(pid))"
        while raw.rows(waiting, (other.info.backend_pid,)) == [(0,)]:
            await asyncio.sleep(0.001)
        other.execute("SELECT pg_sleep(0.6)")
    [verdict] = await settling
    assert verdict.applied
    assert raw.rows(count) == [(1,)]


def floors_at(asks: list[Ask] | None = None) -> Floors:
    """Floors that have learnt of one line, and use what they learnt first."""
    floors = Floors()
    for number, reached in enumerate((500, 900, 950)):
        floors.learn(1_000_000 + number * LAG_US, 0, {LINE: reached})
    return floors


def test_a_floor_is_used_only_when_it_is_old_enough() -> None:
    """What a claim has just learnt does not bind the next one; what it learnt a while ago does."""
    floors = Floors()
    floors.learn(1_000_000, 0, {LINE: 500})
    assert floors.of([ask()]) == [0]
    floors.learn(1_000_000 + LAG_US, 0, {LINE: 900})
    assert floors.of([ask()]) == [0]  # at least one lag has to pass after it was learnt, however soon the next promotion comes
    floors.learn(1_000_000 + 2 * LAG_US, 0, {LINE: 950})
    floors.of([ask()])  # made without, as one is now and then
    assert floors.of([ask()]) == [500]
    assert floors.of([ask(lane="retry")]) == [0]


def test_a_clock_that_goes_back_drops_the_floors() -> None:
    """After a step back, due jobs may have earlier times than those that were taken."""
    floors = floors_at()
    floors.learn(1, 0, {})
    assert floors.of([ask()]) == [0]


def test_another_count_drops_the_floors() -> None:
    """Somebody has put a job behind them."""
    floors = floors_at()
    floors.learn(1_000_001 + 2 * LAG_US, 1, {})
    assert floors.of([ask()]) == [0]


def test_every_now_and_then_a_claim_has_no_floor() -> None:
    """One claim is made without, the next one has its floor again."""
    floors = floors_at()
    floors.of([ask()])
    floors.learn(1_000_000 + 2 * LAG_US + FULL_EVERY_US, 0, {})
    assert floors.of([ask()]) == [0]
    assert floors.of([ask()]) == [900]


def test_a_claim_that_ends_behind_a_floor_drops_it() -> None:
    """It found a job there by having no floor; however many more there are, the next claims find them, and not one claim in two seconds."""
    floors = floors_at()
    floors.of([ask()])
    assert floors.of([ask()]) == [500]
    other = ("q", "retry", 0)
    floors.learn(1_000_001 + 2 * LAG_US, 0, {LINE: 100, other: 700})
    assert floors.of([ask()]) == [0]
    floors.learn(1_000_001 + 3 * LAG_US, 0, {LINE: 120})
    floors.learn(1_000_001 + 4 * LAG_US, 0, {LINE: 140})
    floors.of([ask()])
    assert floors.of([ask(), ask(lane="retry")]) == [100, 700]
