from __future__ import annotations

import asyncio
from collections import Counter

from mulligan.core.ids import new_id
from mulligan.stores.mongo import MongoStore, from_url
from tests.builders import ask, claim, done, new_job, retry

JOBS, CLAIMERS, STORES = 2_000, 8, 4


async def test_claimers_share_a_queue_without_meeting(url: str) -> None:
    """Eight claimers on four stores take every job once, then once more: fences 1 and 2, none lost, hardly a claim in vain."""
    stores = [from_url(url) for _ in range(STORES)]
    for store in stores:
        await store.open()
    try:
        jobs = [new_job() for _ in range(JOBS)]
        await stores[0].insert(jobs)
        taken: list[tuple[str, int]] = []
        vain = await asyncio.gather(*(drain(stores[number % STORES], f"w{number}", taken) for number in range(CLAIMERS)))
        assert Counter(taken) == Counter((job.id, fence) for job in jobs for fence in (1, 2))
        # Each claimer ends with a few empty claims, when only what others still hold is left.
        assert sum(vain) <= CLAIMERS * 25
        [queue] = (await stores[0].stats()).queues
        assert (queue.done, queue.processing, queue.fresh_ready + queue.retry_ready) == (JOBS, 0, 0)
    finally:
        for store in stores:
            await store.close()


async def drain(store: MongoStore, owner: str, taken: list[tuple[str, int]]) -> int:
    """Claims until nothing is left; each job fails at its first attempt. How many claims came back empty while jobs were there."""
    vain = 0
    while True:
        answer = await claim(store, ask(), ask(lane="retry"), total=50, owner=owner)
        if not answer.jobs:
            vain += 1
            if len(taken) >= 2 * JOBS:
                return vain
            await asyncio.sleep(0)
            continue
        taken += [(job.id, job.fence) for job in answer.jobs]
        verdicts = await store.settle([retry(job, 0) if job.fence == 1 else done(job) for job in answer.jobs])
        assert all(verdict.applied for verdict in verdicts)


async def test_claim_that_was_remembered_but_not_taken_is_finished_by_its_repeat(store: MongoStore) -> None:
    """A process that ended between writing its claim down and taking the jobs finds them when it repeats the claim, and no others."""
    jobs = [new_job() for _ in range(4)]
    await store.insert(jobs)
    claim_id = new_id(0)
    doc = {"_id": claim_id, "at_us": await store.now_us(), "ids": [job.id for job in jobs[:2]], "fences": [0, 0]}
    await store._call(lambda: store._db.claims.insert_one(doc))
    again = await claim(store, claim_id=claim_id)
    assert [job.id for job in again.jobs] == [job.id for job in jobs[:2]]
    await store.settle([retry(job, 0) for job in again.jobs])
    assert (await claim(store, claim_id=claim_id)).jobs == []
