from __future__ import annotations

import asyncio

from mulligan.core.clock import ManualClock
from mulligan.stores.postgres import PostgresStore, from_url
from tests.builders import claim, done, new_job
from tests.postgres.conftest import Raw
from tests.servers.postgres import Postgres


async def test_tallies_are_put_together_without_losing_any(store: PostgresStore, raw: Raw) -> None:
    """Deltas become one row per queue and status, also while others write more of them; the figures stay the same."""
    await store.insert([new_job() for _ in range(60)])
    jobs = (await claim(store)).jobs

    async def compact() -> None:
        for _ in range(20):
            await store._call(lambda: store._db.rows("SELECT {s}.compact_tallies()"))

    await asyncio.gather(compact(), compact(), *(store.settle([done(job)]) for job in jobs))
    [queue] = (await store.stats()).queues
    assert queue.done == 60
    await compact()
    assert raw.rows("SELECT queue, status, jobs FROM {s}.tallies") == [("q", "done", 60)]
    await store.prune("done", 0, 25)
    [queue] = (await store.stats()).queues
    assert queue.done == 35


async def test_old_claims_are_forgotten(store: PostgresStore, raw: Raw, clock: ManualClock) -> None:
    """A claim id is known for an hour; those that are older are removed, and younger ones stay."""
    await store.insert([new_job() for _ in range(2)])
    await claim(store, total=1, claim_id="old")
    clock.advance(3_700)
    await claim(store, total=1, claim_id="young")
    raw.rows("SELECT {s}.forget_claims(%s)", (clock.now_us() - 3_600_000_000,))
    assert raw.rows("SELECT claim_id FROM {s}.claims") == [("young",)]


async def test_a_killed_server_is_survived_without_a_restart_of_ours() -> None:
    """After a crash of the server and its recovery, an open store goes on, and what was acknowledged is there."""
    with Postgres() as server:
        store = from_url(server.url)
        await store.open()
        jobs = [new_job() for _ in range(20)]
        await store.insert(jobs)
        server.kill()
        server.start()
        assert sorted(job.id for job in (await claim(store)).jobs) == sorted(job.id for job in jobs)
        await store.close()


async def test_notes_of_jobs_in_the_past_are_put_together(store: PostgresStore, raw: Raw) -> None:
    """However many inserts lie behind the floors of claims, a claim has few notes of them to add up."""
    for _ in range(300):
        await store.insert([new_job(eta_us=1)])
    counted = "SELECT count(*), sum(jobs) FROM {s}.tallies WHERE status = 'past'"
    [(notes, inserts)] = raw.rows(counted)
    assert (notes < 200, inserts) == (True, 300)  # each insert puts them together with a chance of one in twenty
    raw.run("INSERT INTO {s}.tallies (queue, status, jobs) SELECT '', 'past', 1 FROM generate_series(1, 500)")  # those of others
    await claim(store, total=1)
    assert raw.rows(counted) == [(1, 800)]
