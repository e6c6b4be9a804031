from __future__ import annotations

import asyncio
from collections import Counter

from mulligan.stores.redis import from_url
from tests.builders import claim, done, new_job, retry

JOBS = 2_000


async def test_many_claimers_share_the_jobs(url: str) -> None:
    """Eight claimers on four stores take every job exactly once per run; the first run of each fails, the second succeeds."""
    stores = [from_url(url) for _ in range(4)]
    for store in stores:
        await store.open()
    jobs = [new_job() for _ in range(JOBS)]
    await stores[0].insert(jobs)
    taken: Counter[tuple[str, int]] = Counter()

    async def work(number: int) -> None:
        store = stores[number % 4]
        while held := (await claim(store, total=37, owner=f"worker-{number}")).jobs:
            taken.update((job.id, job.fence) for job in held)
            verdicts = await store.settle([retry(job) if job.fence == 1 else done(job) for job in held])
            assert all(verdict.applied for verdict in verdicts)

    await asyncio.gather(*(work(number) for number in range(8)))
    await work(0)
    assert taken == Counter({(job.id, fence): 1 for job in jobs for fence in (1, 2)})
    [figures] = (await stores[0].stats()).queues
    assert (figures.done, figures.processing, figures.retry_ready) == (JOBS, 0, 0)
    for store in stores:
        assert (await store.promise()).weaknesses == ()
        await store.close()
