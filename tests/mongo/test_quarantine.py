from __future__ import annotations

from typing import Any

import pytest
from bson import encode
from bson.raw_bson import RawBSONDocument

from mulligan.core.clock import ManualClock
from mulligan.core.contract import Query
from mulligan.stores.mongo import MongoStore
from tests.builders import all_events, ask, claim, done, get, new_job, requeue, retry
from tests.mongo.conftest import Raw

# What a hand may do to a document, and which field the reason must name.
DAMAGE: dict[str, tuple[dict[str, Any], str]] = {
    "error is no JSON": ({"last_error": "{"}, "last_error"),
    "error is other JSON": ({"last_error": "[1]"}, "last_error"),
    "error is a number": ({"last_error": 5}, "last_error"),
    "tags are a text": ({"tags": "x"}, "tags"),
    "tags are numbers": ({"tags": [1]}, "tags"),
    "payload is a document": ({"payload": {"$where": "1"}}, "payload"),
    "payload is gone": ({"payload": None}, "payload"),
    "attempts are a text": ({"failures": "many"}, "failures"),
    "due is gone": ({"due_us": None}, "due_us"),
    "due is a text": ({"due_us": "soon"}, "due_us"),
    "created is a fraction": ({"created_at_us": 1.5}, "created_at_us"),
}


def damage(raw: Raw, job_id: str, how: str) -> str:
    """Damages the document; the field that is wrong now."""
    values, field = DAMAGE[how]
    assert raw.mulligan_jobs.update_one({"_id": job_id}, {"$set": values}).modified_count == 1
    return field


@pytest.mark.parametrize("how", DAMAGE)
async def test_claim_quarantines_what_it_cannot_decode(store: MongoStore, raw: Raw, clock: ManualClock, how: str) -> None:
    """The damaged job becomes failed with its reason; the others of the claim are returned as if nothing were wrong."""
    jobs = [new_job() for _ in range(5)]
    await store.insert(jobs)
    field = damage(raw, jobs[2].id, how)
    taken = await claim(store, claim_id="c")
    assert [job.id for job in taken.jobs] == [job.id for job in jobs if job.id != jobs[2].id]
    bad = await get(store, jobs[2].id)
    assert (bad.status, bad.run_at_us, bad.finished_at_us, bad.lease_owner) == ("failed", None, clock.now_us(), None)
    assert bad.last_error is not None
    assert bad.last_error.type == "Undecodable"
    assert [record.outcome for record in bad.history] == ["undecodable"]
    assert field in bad.history[0].why
    assert [(event.kind, event.job_id) for event in await all_events(store)] == [("FAILED", jobs[2].id)]
    assert (await claim(store, claim_id="c")).jobs == taken.jobs
    assert all(verdict.applied for verdict in await store.settle([done(job) for job in taken.jobs]))
    [queue] = (await store.stats()).queues
    assert (queue.done, queue.failed, queue.processing) == (4, 1, 0)


async def test_text_that_is_no_utf8_is_one_bad_job(store: MongoStore, raw: Raw) -> None:
    """A document whose text cannot be decoded by the driver itself is quarantined too; the others of its batch are claimed."""
    jobs = [new_job() for _ in range(3)]
    await store.insert(jobs)
    whole = raw.mulligan_jobs.find_one({"_id": jobs[1].id})
    assert whole is not None
    broken = encode(whole | {"payload": "XXXX"}).replace(b"XXXX", b"\xff\xfe\xff\xfe")
    raw.mulligan_jobs.delete_one({"_id": jobs[1].id})
    raw.mulligan_jobs.with_options(codec_options=raw.codec_options).insert_one(RawBSONDocument(broken))
    assert [job is not None and job.last_error is not None for job in await store.get([job.id for job in jobs])] == [False, True, False]
    assert [job.id for job in (await claim(store)).jobs] == [jobs[0].id, jobs[2].id]
    assert (await get(store, jobs[1].id)).status == "failed"


async def test_sweep_quarantines_what_it_cannot_decode(store: MongoStore, raw: Raw, clock: ManualClock) -> None:
    """A lapsed document that cannot be decoded does not stop the sweep of the others, and is failed by it."""
    jobs = [new_job() for _ in range(3)]
    await store.insert(jobs)
    await claim(store, lease_s=1)
    damage(raw, jobs[1].id, "error is no JSON")
    clock.advance(2)
    assert [job.id for job in await store.overdue(10)] == [jobs[0].id, jobs[2].id]
    assert (await get(store, jobs[1].id)).status == "failed"
    assert [job.id for job in await store.overdue(10)] == [jobs[0].id, jobs[2].id]


@pytest.mark.parametrize("how", DAMAGE)
async def test_looking_shows_what_can_be_shown(store: MongoStore, raw: Raw, how: str) -> None:
    """get and find show a damaged document with its reason, beside whole ones, and change nothing."""
    jobs = [new_job() for _ in range(3)]
    await store.insert(jobs)
    field = damage(raw, jobs[1].id, how)
    for _ in range(2):
        seen = await store.get([job.id for job in jobs])
        assert seen[1] is not None
        assert seen[1].status == "pending"
        assert seen[1].last_error is not None
        assert field in seen[1].last_error.message
        assert [job.last_error for job in seen if job is not None and job.id != jobs[1].id] == [None, None]
    found = await store.find(Query(status="pending"), 10)
    assert [job.id for job in found.jobs] == [job.id for job in reversed(jobs)]


async def test_requeued_damage_is_quarantined_again(store: MongoStore, raw: Raw) -> None:
    """A job that is still damaged when an operator sends it back is claimed by nobody."""
    job = new_job()
    await store.insert([job])
    damage(raw, job.id, "payload is gone")
    await claim(store)
    [verdict] = await store.settle([requeue(await get(store, job.id))])
    assert verdict.applied
    assert (await claim(store, ask(lane="retry"))).jobs == []
    bad = await get(store, job.id)
    assert (bad.status, bad.generation) == ("failed", 2)


async def test_damaged_history_is_shown_as_such(store: MongoStore, raw: Raw) -> None:
    """A history record that cannot be decoded does not hide the job or the other records, nor end the next settlement."""
    job = new_job()
    await store.insert([job])
    for _ in range(3):
        [held] = (await claim(store)).jobs
        await store.settle([retry(held)])
    raw.mulligan_jobs.update_one({"_id": job.id}, {"$set": {"history.1": {"a": 1}}})
    assert [record.outcome for record in (await get(store, job.id)).history] == ["failure", "undecodable", "failure"]
    raw.mulligan_jobs.update_one({"_id": job.id}, {"$set": {"history": "none"}})
    [held] = (await claim(store)).jobs
    [verdict] = await store.settle([retry(held)])
    assert verdict.applied
    assert [record.outcome for record in (await get(store, job.id)).history] == ["failure"]


async def test_damaged_event_is_passed_over(store: MongoStore, raw: Raw) -> None:
    """An event that cannot be decoded is left out of the log, and the ones after it are there."""
    for queue in ("a", "b", "c"):
        await store.set_queue(queue, paused=True)
    raw.mulligan_events.update_one({}, {"$set": {"events.1": "{"}})
    assert [(event.seq, event.queue) for event in await all_events(store)] == [(1, "a"), (3, "c")]
