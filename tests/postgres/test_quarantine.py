from __future__ import annotations

import pytest

from mulligan.core.clock import ManualClock
from mulligan.core.contract import Query
from mulligan.stores.postgres import PostgresStore
from tests.builders import all_events, ask, claim, done, fifo, get, new_job, requeue, retry
from tests.postgres.conftest import Raw

# What may be wrong with a row, and which column the reason must name.
DAMAGE = {
    "error is no JSON": ("last_error = '{{'", "last_error"),
    "error is other JSON": ("last_error = '[1]'", "last_error"),
    "tags are no JSON": ("tags = 'x'", "tags"),
    "tags are other JSON": ("tags = '{{\"a\":1}}'", "tags"),
    "lane is unknown": ("lane = 'slow'", "lane"),
}


def damage(raw: Raw, job_id: str, how: str) -> str:
    """Damages the row; the column that is wrong now."""
    change, column = DAMAGE[how]
    assert raw.run(f"UPDATE {{s}}.jobs SET {change} WHERE id = %s", (job_id,)) == 1
    return column


@pytest.mark.parametrize("how", [how for how in DAMAGE if how != "lane is unknown"])
async def test_claim_quarantines_what_it_cannot_decode(store: PostgresStore, raw: Raw, clock: ManualClock, how: str) -> None:
    """The damaged job becomes failed with its reason; the others of the claim are returned as if nothing were wrong."""
    jobs = [new_job() for _ in range(5)]
    await store.insert(jobs)
    column = damage(raw, jobs[2].id, how)
    taken = await claim(store, claim_id="c")
    assert [job.id for job in taken.jobs] == [job.id for job in jobs if job.id != jobs[2].id]
    bad = await get(store, jobs[2].id)
    assert (bad.status, bad.run_at_us, bad.finished_at_us, bad.lease_owner) == ("failed", None, clock.now_us(), None)
    assert bad.last_error is not None
    assert bad.last_error.type == "Undecodable"
    assert column in bad.last_error.message
    assert [record.outcome for record in bad.history] == ["undecodable"]
    assert column in bad.history[0].why
    assert [(event.kind, event.job_id) for event in await all_events(store)] == [("FAILED", jobs[2].id)]
    assert (await claim(store, claim_id="c")).jobs == taken.jobs
    verdicts = await store.settle([done(job) for job in taken.jobs])
    assert all(verdict.applied for verdict in verdicts)
    [queue] = (await store.stats()).queues
    assert (queue.done, queue.failed, queue.processing) == (4, 1, 0)


async def test_a_row_without_a_due_time_stops_nobody(store: PostgresStore, raw: Raw, clock: ManualClock) -> None:
    """Where a hand took the rule off the column: a claim writes what is missing, a sweep sets the row to failed, and a look shows it."""
    raw.run("ALTER TABLE {s}.jobs ALTER COLUMN due_us DROP NOT NULL")
    jobs = [new_job() for _ in range(3)]
    await store.insert(jobs)
    raw.run("UPDATE {s}.jobs SET due_us = NULL WHERE id = %s", (jobs[1].id,))
    shown = await get(store, jobs[1].id)
    assert shown.last_error is not None and "due_us" in shown.last_error.message
    assert [(job.id, job.due_us) for job in (await claim(store, claim_id="c")).jobs] == [(job.id, clock.now_us()) for job in jobs]
    raw.run("UPDATE {s}.jobs SET due_us = NULL WHERE id = ANY (%s)", ([jobs[0].id, jobs[1].id],))
    assert [job.id for job in (await claim(store, claim_id="c")).jobs] == [jobs[2].id]
    raw.run("UPDATE {s}.jobs SET due_us = NULL WHERE id = %s", (jobs[2].id,))
    clock.advance(31)
    assert await store.overdue(10) == []
    assert [(await get(store, job.id)).status for job in jobs] == ["failed"] * 3


async def test_the_order_of_a_claim_follows_a_time_edited_by_hand(store: PostgresStore, raw: Raw, clock: ManualClock) -> None:
    """Somebody who moves a waiting job writes run_at_us alone; the claim goes by that, and its job says so."""
    jobs = [new_job() for _ in range(3)]
    await store.insert(jobs)
    raw.run("UPDATE {s}.jobs SET run_at_us = run_at_us - 5 WHERE id = %s", (jobs[2].id,))
    taken = (await claim(store)).jobs
    assert [job.id for job in taken] == [jobs[2].id, jobs[0].id, jobs[1].id]
    assert [job.due_us - clock.now_us() for job in taken] == [-5, 0, 0]


async def test_claim_in_the_order_of_creation_quarantines_any_lane(store: PostgresStore, raw: Raw) -> None:
    """A row of a lane that does not exist is found by a claim of both lanes, and is then out of the way."""
    jobs = [new_job() for _ in range(3)]
    await store.insert(jobs)
    raw.run("UPDATE {s}.jobs SET ready = true")
    damage(raw, jobs[0].id, "lane is unknown")
    assert [job.id for job in (await claim(store, fifo())).jobs] == [jobs[1].id, jobs[2].id]
    assert (await get(store, jobs[0].id)).status == "failed"


async def test_sweep_quarantines_what_it_cannot_decode(store: PostgresStore, raw: Raw, clock: ManualClock) -> None:
    """A lapsed row that cannot be decoded does not stop the sweep of the others, and is failed by it."""
    jobs = [new_job() for _ in range(3)]
    await store.insert(jobs)
    await claim(store, lease_s=1)
    damage(raw, jobs[1].id, "error is no JSON")
    clock.advance(2)
    assert [job.id for job in await store.overdue(10)] == [jobs[0].id, jobs[2].id]
    assert (await get(store, jobs[1].id)).status == "failed"
    assert [job.id for job in await store.overdue(10)] == [jobs[0].id, jobs[2].id]


@pytest.mark.parametrize("how", DAMAGE)
async def test_looking_shows_what_can_be_shown(store: PostgresStore, raw: Raw, how: str) -> None:
    """get and find show a damaged row with its reason, beside whole ones, and change nothing."""
    jobs = [new_job(tags=("t",)) for _ in range(3)]
    await store.insert(jobs)
    column = damage(raw, jobs[1].id, how)
    for _ in range(2):
        seen = await store.get([job.id for job in jobs])
        assert [job.id for job in seen if job is not None] == [job.id for job in jobs]
        assert seen[1] is not None
        assert seen[1].status == "pending"
        assert seen[1].last_error is not None
        assert column in seen[1].last_error.message
        assert [job.last_error for job in seen if job is not None and job.id != jobs[1].id] == [None, None]
    found = await store.find(Query(status="pending"), 10)
    assert [job.id for job in found.jobs] == [job.id for job in reversed(jobs)]
    tagged = await store.find(Query(tag="t"), 10)
    assert len(tagged.jobs) == (2 if column == "tags" else 3)


async def test_requeued_damage_is_quarantined_again(store: PostgresStore, raw: Raw) -> None:
    """A job that is still damaged when an operator sends it back is claimed by nobody."""
    job = new_job()
    await store.insert([job])
    damage(raw, job.id, "tags are no JSON")
    await claim(store)
    [verdict] = await store.settle([requeue(await get(store, job.id))])
    assert verdict.applied
    assert (await claim(store, ask(lane="retry"))).jobs == []
    bad = await get(store, job.id)
    assert (bad.status, bad.generation) == ("failed", 2)


async def test_damaged_history_and_events_are_passed_over(store: PostgresStore, raw: Raw) -> None:
    """A record or an event that cannot be decoded does not hide the job or the others."""
    job = new_job()
    await store.insert([job])
    for _ in range(3):
        [held] = (await claim(store)).jobs
        await store.settle([retry(held)])
    [first, second, third] = [row[0] for row in raw.rows("SELECT seq FROM {s}.history ORDER BY seq")]
    assert first < second < third
    raw.run("UPDATE {s}.history SET record = '{{' WHERE seq = %s", (second,))
    assert [record.outcome for record in (await get(store, job.id)).history] == ["failure", "undecodable", "failure"]
    before = await all_events(store)
    raw.run("""UPDATE {s}.events SET bodies = replace(bodies, '"RETRY_SCHEDULED"', '1') WHERE seq = %s""", (before[1].seq,))
    assert await all_events(store) == [before[0], *before[2:]]
    raw.run("UPDATE {s}.events SET bodies = '{{' WHERE seq = %s", (before[3].seq,))  # of all events of one write
    assert await all_events(store) == [before[0], *before[4:]]
