from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from pymongo.errors import AutoReconnect

from mulligan.core.clock import ManualClock
from mulligan.stores.mongo import MongoStore, from_url
from mulligan.stores.mongo import settle as settling
from tests.builders import all_events, claim_one, failed, get, new_job, requeue, retry
from tests.mongo.conftest import Raw
from tests.servers.urls import with_option


@pytest.fixture
async def store(url: str, clock: ManualClock) -> AsyncIterator[MongoStore]:
    """An open store that keeps dead letters."""
    store = from_url(with_option(url, "dead_letters", "dead"), clock=clock)
    await store.open()
    yield store
    await store.close()


async def test_m12_a_failed_job_is_copied(store: MongoStore, raw: Raw) -> None:
    """Over the attempt limit a job is copied into the dead-letter collection, readable: payload, error and history as values (M12)."""
    job = new_job(payload='{"args":[1,{"a":"b"}],"kwargs":{}}', tags=("t",))
    await store.insert([job])
    await store.settle([retry(await claim_one(store), 0)])
    assert raw.dead.count_documents({}) == 0
    from tests.builders import ask

    await store.settle([failed(await claim_one(store, ask(lane="retry")))])
    [letter] = raw.dead.find({})
    assert (letter["_id"], letter["job_id"], letter["queue"], letter["tags"]) == (f"{job.id}:1", job.id, "q", ["t"])
    assert letter["payload"] == {"args": [1, {"a": "b"}], "kwargs": {}}
    assert letter["error"]["type"] == "ConnectionError"
    assert len(letter["history"]) == 2
    assert raw.mulligan_jobs.count_documents({"letter_due": True}) == 0


async def test_letter_that_was_missed_is_made_by_the_next_sweep(store: MongoStore, raw: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that ends between failing a job and copying it leaves a mark, and any worker's sweep makes the copy."""
    await store.insert([new_job()])

    async def gone(_: object) -> int:
        return 0

    with monkeypatch.context() as patch:
        patch.setattr(settling, "copy_letters", gone)
        await store.settle([failed(await claim_one(store))])
    assert raw.dead.count_documents({}) == 0
    await store.overdue(10)
    assert raw.dead.count_documents({}) == 1


async def test_a_copy_that_fails_does_not_repeat_the_settle(store: MongoStore, raw: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    """The outcome is written and told; the wire breaks while the letter is copied. It is told once, and the next sweep makes the copy."""
    await store.insert([new_job()])
    job = await claim_one(store)

    async def cut(_: object) -> int:
        raise AutoReconnect("connection reset")

    with monkeypatch.context() as patch:
        patch.setattr(settling, "copy_letters", cut)
        [verdict] = await store.settle([failed(job)])
    assert (verdict.applied, verdict.status) == (True, "failed")
    assert [event.kind for event in await all_events(store)].count("FAILED") == 1
    await store.overdue(10)
    assert raw.dead.count_documents({}) == 1


async def test_requeued_letter_says_so(store: MongoStore, raw: Raw) -> None:
    """The letter of a job that was sent back is marked; a second failure is a second letter."""
    job = new_job()
    await store.insert([job])
    await store.settle([failed(await claim_one(store))])
    await store.settle([requeue(await get(store, job.id))])
    [letter] = raw.dead.find({})
    assert letter["requeued_at_us"] == await store.now_us()
    from tests.builders import ask

    await store.settle([failed(await claim_one(store, ask(), ask(lane="retry")))])
    assert [letter["_id"] for letter in raw.dead.find({}).sort("_id", 1)] == [f"{job.id}:1", f"{job.id}:2"]


@pytest.mark.parametrize("payload", ['{"args":[{"$where":1}],"kwargs":{}}', '{"args":[{"a.b":1}],"kwargs":{}}', "{"])
async def test_payload_mongodb_cannot_keep_stays_a_text(store: MongoStore, raw: Raw, payload: str) -> None:
    """A payload with keys MongoDB gives a meaning, or that is no JSON, stands in the letter as the text it is."""
    await store.insert([new_job(payload=payload)])
    await store.settle([failed(await claim_one(store))])
    [letter] = raw.dead.find({})
    assert letter["payload"] == payload
