from __future__ import annotations

import pytest

from mulligan.core.clock import ManualClock
from mulligan.core.job import STATUSES
from mulligan.core.limits import Slots
from mulligan.stores.redis import RedisStore
from tests.builders import ask, bucket, claim, done, failed, fifo, full_state, grip, grouped, new_job, retry
from tests.redis.keys import command, keys

NOTHING = {"missing_entries": 0, "wrong_entries": 0, "ownerless_keys": 0, "wrong_tallies": 0, "stateless_jobs": 0}


async def contents(store: RedisStore) -> dict[str, object]:
    """The entries of every index that is a sorted set."""
    found: dict[str, object] = {}
    for key in await keys(store):
        if await command(store, "TYPE", f"{{}}{key}") == b"zset":
            found[key] = await command(store, "ZRANGE", f"{{}}{key}", 0, -1, "WITHSCORES")
    return found


async def fill(store: RedisStore) -> None:
    """Jobs in every status, lane and index."""
    await store.insert([new_job(unique_key=f"key {number}") for number in range(6)])
    held = (await claim(store, total=4)).jobs
    await store.settle([done(held[0]), failed(held[1]), retry(held[2], delay_s=60)])
    await store.insert([new_job("other") for _ in range(3)])
    await claim(store, fifo("other"), total=1)
    jobs = [new_job() for _ in range(2)]
    await store.insert(jobs)
    await store.request_cancel([jobs[0].id])
    tenants = [("a", None), ("b", "k"), ("c", None)]
    await store.insert([grouped("ring", fair=name, key=key, delay_s=delay_s) for name, key in tenants for delay_s in (0, 60)])
    await claim(store, ask("ring", limits=(Slots(most=5),)), total=2)


@pytest.mark.parametrize("fair", [None, "tenant"])
@pytest.mark.parametrize("by_age", [False, True])
async def test_an_entry_without_a_job_blocks_nothing(store: RedisStore, by_age: bool, fair: str | None) -> None:
    """Jobs removed by hand, more of them than a claim asks for, leave index entries behind; the claim drops them and serves the rest."""
    gone = [grouped(fair=fair) for _ in range(30)]
    await store.insert(gone)
    left = [grouped(fair=fair) for _ in range(5)]
    await store.insert(left)
    for job in gone:
        await command(store, "DEL", f"{{}}state:{job.id}", f"{{}}body:{job.id}")
    claimed = await claim(store, fifo() if by_age else ask(), total=3)
    assert [job.id for job in claimed.jobs] == [job.id for job in left[:3]]


async def test_a_lease_without_a_job_blocks_nothing(store: RedisStore, clock: ManualClock) -> None:
    """Sweeping and pruning pass over jobs that were removed by hand."""
    await store.insert([new_job() for _ in range(6)])
    held = (await claim(store)).jobs
    await store.settle([done(job) for job in held[3:]])
    for job in (held[0], held[3]):
        await command(store, "DEL", f"{{}}state:{job.id}", f"{{}}body:{job.id}")
    clock.advance(31)
    assert [job.id for job in await store.overdue(2)] == [held[1].id, held[2].id]
    assert await store.prune("done", 0, 10) == 2


async def test_there_is_nothing_to_mend_in_a_sound_store(store: RedisStore) -> None:
    """Repair changes nothing where nothing is wrong."""
    await fill(store)
    before = await full_state(store)
    assert await store.repair() == NOTHING
    assert await full_state(store) == before


@pytest.mark.parametrize(
    "lost",
    [
        *("due:q:fresh:0", "due:q:retry:0", "leases", "finished:done", "ids", "unique", "counts", "names", "ready:other:fresh:0"),
        *("group:fresh:0:4:ring:c\x1f\x1f\x1f", "waiting:ring:fresh:0", "groups:ring:fresh:0", "grouped"),
        *("slots:ring:fresh", "keyed:fresh:4:ring:k"),
    ],
)
async def test_lost_indexes_are_made_again(store: RedisStore, lost: str) -> None:
    """Every index that was removed by hand is made again from the jobs themselves."""
    await fill(store)
    before, indexes = await full_state(store), await contents(store)
    assert lost in await keys(store)
    await command(store, "DEL", f"{{}}{lost}")
    mended = await store.repair()
    assert sum(mended.values()) > 0 or lost in ("names", "grouped")
    assert await full_state(store) == before
    if not lost.startswith("ready:"):  # marked jobs wait among the due ones again
        assert await contents(store) == indexes
    assert await store.repair() == NOTHING


async def test_entries_in_the_wrong_index_are_removed(store: RedisStore) -> None:
    """An entry that names a job of another status, or none at all, is removed from every index."""
    await fill(store)
    before = await full_state(store)
    [some_id] = [job_id for job_id, job in before["jobs"].items() if job.status == "failed"]
    for status in STATUSES[2:]:
        await command(store, "ZADD", f"{{}}finished:{status}", 5, "nobody")
    for index in ("due:q:fresh:0", "ready:q:fresh:0", "leases", "waiting:q:fresh:0", "slots:q:fresh", "keyed:fresh:1:q:k"):
        await command(store, "ZADD", f"{{}}{index}", 5, some_id)
    for index in ("group:fresh:0:4:ring:gone\x1f\x1f\x1f", "group:fresh:0:4:ring:a\x1f\x1f\x1f"):
        await command(store, "ZADD", f"{{}}{index}", 5, some_id)
    await command(store, "ZADD", "{}groups:ring:fresh:0", 0, "gone\x1f\x1f\x1f")
    assert (await store.repair())["wrong_entries"] == 12
    assert await full_state(store) == before


async def test_a_body_without_a_state_is_shown_as_failed(store: RedisStore) -> None:
    """A job whose state was removed by hand is set to failed, so that somebody sees it."""
    job = new_job()
    await store.insert([job])
    await command(store, "DEL", f"{{}}state:{job.id}")
    assert (await store.repair())["stateless_jobs"] == 1
    [figures] = (await store.stats()).queues
    assert (figures.fresh_ready, figures.failed) == (0, 1)


async def test_receipts_of_jobs_that_are_gone_are_removed(store: RedisStore) -> None:
    """Those of others stay, also where only the body of a job is left."""
    jobs = [new_job() for _ in range(3)]
    await store.insert(jobs)
    for job in (await claim(store)).jobs:
        await store.put_receipt(grip(job), "charge", "1")
    await command(store, "DEL", f"{{}}state:{jobs[0].id}", f"{{}}body:{jobs[0].id}")
    await command(store, "DEL", f"{{}}state:{jobs[1].id}")
    await store.repair()
    assert [len(own) for own in await store.receipts([job.id for job in jobs])] == [0, 1, 1]
    assert await store.repair() == NOTHING


async def test_pruned_jobs_leave_no_keys(store: RedisStore) -> None:
    """After all jobs are done and pruned, only what is kept for the app as a whole is left."""
    await store.insert([new_job(unique_key=f"key {number}") for number in range(10)])
    held = (await claim(store)).jobs
    await store.settle([retry(job) for job in held])
    held = (await claim(store)).jobs
    await store.settle([done(job, '"result"') for job in held])
    assert await store.prune("done", 0, 100) == 10
    assert await keys(store) <= {"epoch", "beat", "schema", "names", "events", "seq", "claims"}


async def test_grouped_jobs_leave_no_keys(store: RedisStore) -> None:
    """Neither groups nor keys nor slots outlive their jobs: only the queue's name, and what is left in its buckets."""
    later = grouped(fair="later", delay_s=60)
    await store.insert([later, *(grouped(fair=name, key=f"key {name}") for name in "abc" for _ in range(2))])
    await store.request_cancel([later.id])
    limits = (Slots(most=10), Slots(most=2, by_key=True), bucket(burst=100))
    held = (await claim(store, ask(limits=limits))).jobs
    await store.settle([retry(job) for job in held[:3]] + [failed(job) for job in held[3:]])
    await store.settle([done(job) for job in (await claim(store, ask(lane="retry", limits=limits))).jobs])
    await store.prune("done", 0, 100)
    await store.prune("failed", 0, 100)
    await store.prune("cancelled", 0, 100)
    rest = {"epoch", "beat", "schema", "names", "events", "seq", "claims"}
    assert await keys(store) <= {*rest, "grouped", "levels", "touched"}
