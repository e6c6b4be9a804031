from __future__ import annotations

from typing import Any

import pytest
from pymongo.asynchronous.collection import AsyncCollection

from mulligan.stores.mongo import MongoStore
from mulligan.stores.mongo.settle import plain_fences
from mulligan.stores.mongo.write import GROUP_MAX
from tests.builders import ask, claim, done, new_job, retry
from tests.mongo.conftest import Raw

JOBS = 2 * GROUP_MAX + 50


async def test_a_write_is_recognised_after_the_next_holder_has_succeeded(
    store: MongoStore, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not all of a batch was held, so it is looked at what was written; one job of it has been claimed and done by another meanwhile."""
    await store.insert([new_job(), new_job()])
    first, lost = (await claim(store, ask(), total=2)).jobs
    before = retry(first, 0)
    await store.settle([before])
    [held] = (await claim(store, ask(lane="retry"), total=1)).jobs
    asked = retry(held, 0)
    real = AsyncCollection.bulk_write
    others: list[str | None] = []

    async def bulk_write(this: AsyncCollection[Any], *arguments: Any, **named: Any) -> Any:
        if others:
            return await real(this, *arguments, **named)
        others.append(None)
        raw.mulligan_jobs.update_one({"_id": lost.id}, {"$inc": {"fence": 1}})  # somebody has taken it over
        written = await real(this, *arguments, **named)
        [taken] = (await claim(store, ask(lane="retry"), total=1)).jobs
        [verdict] = await store.settle([done(taken, last_delay_us=None, error=None)])
        others[0] = verdict.status
        return written

    monkeypatch.setattr(AsyncCollection, "bulk_write", bulk_write)
    verdicts = await store.settle([asked, retry(lost, 0)])
    assert others == ["done"]
    assert [(verdict.applied, verdict.status) for verdict in verdicts] == [(True, "pending"), (False, "processing")]
    [doc] = raw.mulligan_jobs.find({"_id": first.id})
    assert doc["settled_before"] == asked.settle_id


async def test_successes_that_are_not_alike_keep_what_is_their_own(store: MongoStore, raw: Raw) -> None:
    """One batch of two queues, two fences, with and without results, longer than one update: each job gets its own result and settle id."""
    await store.insert([new_job(queue) for queue in ("q", "q2") for _ in range(25)])
    first = (await claim(store, ask("q"), ask("q2"), total=50)).jobs
    await store.settle([retry(job, 0) for job in first])
    await store.insert([new_job() for _ in range(JOBS)])
    taken = (await claim(store, ask("q"), ask("q", "retry"), ask("q2", "retry"), total=JOBS + 50)).jobs
    assert {(job.queue, job.fence) for job in taken} == {("q", 1), ("q", 2), ("q2", 2)}
    results = {job.id: (None, "1", f'"{job.id}"')[number % 3] for number, job in enumerate(taken)}
    changes = [done(job, results[job.id], last_delay_us=None, error=None) for job in taken]
    assert len(plain_fences(changes)) == len(changes)
    verdicts = await store.settle(changes)
    assert [(verdict.job_id, verdict.applied, verdict.status) for verdict in verdicts] == [(job.id, True, "done") for job in taken]
    docs = {doc["_id"]: doc for doc in raw.mulligan_jobs.find({})}
    assert {name: doc.get("result_json") for name, doc in docs.items()} == results
    assert {name: doc["settle_id"] for name, doc in docs.items()} == {change.job_id: change.settle_id for change in changes}
    assert {doc["rest"] for doc in docs.values()} == {"done q", "done q2"}
