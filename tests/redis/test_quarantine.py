from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from mulligan.core.clock import ManualClock
from mulligan.core.contract import Query
from mulligan.core.limits import TOKEN, Slots
from mulligan.stores.redis import RedisStore
from mulligan.stores.redis.layout import STATE_WIDTH, State, array_of, blob, run_of
from tests.builders import all_events, ask, bucket, claim, fifo, get, grouped, new_job, requeue, retry
from tests.redis.keys import command, keys

GOOD_LIMITS = blob(run_of((None, None)))
COUNTS = blob(run_of((0, 0, 0, 0, 1)))


def state_due_at(due: object) -> bytes:
    """The state of a job that waits in queue q, with this as its due time."""
    return _state(None, due)


def state_settled_by(settle_id: object) -> bytes:
    """The state of such a job which is due, with this as the id of its last settlement."""
    return _state(settle_id, 1)


def _state(settle_id: object, due: object) -> bytes:
    claimed = ("pending", 0, 0, 1, 1, *(None,) * 6)
    return run_of((*claimed, "fresh", 1, COUNTS, settle_id, None, False, due, "q", 0, 1, 1, None, False, None, None, None))


# What somebody may have done to the keys of a job, and what the reason must name.
DAMAGE: dict[str, tuple[str, Any, str]] = {
    "body is gone": ("body", None, "task"),
    "body is no MessagePack": ("body", b"\xc1\xff", "task"),
    "body has other parts": ("body", run_of((1, 2, 3)), "task"),
    "payload is a number": (
        "body",
        run_of((blob(run_of(("x", "q", "work", 5, "{}", 3, 0))), GOOD_LIMITS, blob(run_of((None,) * 6 + ((), None))))),
        "payload",
    ),
    "tags are a map": (
        "body",
        run_of((blob(run_of(("x", "q", "work", "{}", "{}", 3, 0))), GOOD_LIMITS, blob(run_of((None,) * 6 + ({"a": 1}, None))))),
        "tags",
    ),
    "state is no MessagePack": ("state", b"\xc1\xff\xff", "created_at_us"),
    "state is short": ("state", run_of(("pending", 1)), "created_at_us"),
    "due time is gone": ("state", state_due_at(None), "due_us"),
    "due time is a text": ("state", state_due_at("soon"), "due_us"),
    "settle id is a number": ("state", state_settled_by(5), "settle_id"),
}
SEEN_BY_THE_CLIENT = ("payload is a number", "tags are a map")


async def damage(store: RedisStore, job_id: str, how: str) -> str:
    """Damages the job; the field that is wrong now."""
    kind, value, field = DAMAGE[how]
    if value is None:
        await command(store, "DEL", f"{{}}{kind}:{job_id}")
    else:
        await command(store, "SET", f"{{}}{kind}:{job_id}", value)
    return field


@pytest.mark.parametrize("fair", [None, "tenant"])
@pytest.mark.parametrize("by_age", [False, True])
@pytest.mark.parametrize("how", DAMAGE)
async def test_claim_quarantines_what_it_cannot_decode(store: RedisStore, how: str, by_age: bool, fair: str | None) -> None:
    """The damaged job is set to failed with the reason, record and event; the others are claimed. What the script sees costs no token."""
    jobs = [grouped(fair=fair) for _ in range(3)]
    await store.insert(jobs)
    field = await damage(store, jobs[1].id, how)
    limits = () if fair is None else (Slots(most=3), bucket(burst=3))
    claimed = await claim(store, replace(fifo() if by_age else ask(), limits=limits))
    assert claimed.levels == ({} if fair is None else {"b": 0 if how in SEEN_BY_THE_CLIENT else TOKEN})
    assert [job.id for job in claimed.jobs] == [jobs[0].id, jobs[2].id]
    bad = await get(store, jobs[1].id)
    assert bad.status == "failed"
    assert bad.last_error is not None and bad.last_error.type == "Undecodable"
    assert field in bad.last_error.message
    assert bad.history[-1].outcome == "undecodable"
    assert [(event.kind, event.job_id) for event in await all_events(store)] == [("FAILED", jobs[1].id)]
    [figures] = (await store.stats()).queues
    assert (figures.processing, figures.failed, figures.fresh_ready) == (2, 1, 0)
    assert (await claim(store, fifo() if by_age else ask())).jobs == []
    if fair is not None:
        assert await command(store, "ZCARD", "{}slots:q:fresh") == 2
        assert "groups:q:fresh:0" not in await keys(store)


@pytest.mark.parametrize("how", [how for how in DAMAGE if DAMAGE[how][0] == "body"])
async def test_sweep_quarantines_what_it_cannot_decode(store: RedisStore, clock: ManualClock, how: str) -> None:
    """A damaged job whose lease has ended does not keep the others from being swept."""
    await store.insert([new_job() for _ in range(3)])
    held = (await claim(store)).jobs
    await damage(store, held[1].id, how)
    clock.advance(31)
    assert [job.id for job in await store.overdue(10)] == [held[0].id, held[2].id]
    assert (await get(store, held[1].id)).status == "failed"
    assert len(await store.overdue(10)) == 2


@pytest.mark.parametrize("due", [None, "soon", 1.5])
async def test_a_running_job_without_a_due_time_is_quarantined(store: RedisStore, clock: ManualClock, due: object) -> None:
    """Whoever meets it next, the repeat of its claim or a sweep, sets it to failed and goes on with the others."""
    await store.insert([new_job() for _ in range(4)])
    held = (await claim(store, claim_id="c")).jobs
    for job in held[1:3]:
        text = await command(store, "GET", f"{{}}state:{job.id}")
        values = msgspec.msgpack.decode(array_of(text, STATE_WIDTH), type=list[msgspec.Raw])
        values[State.__struct_fields__.index("due_us")] = msgspec.Raw(msgspec.msgpack.encode(due))
        await command(store, "SET", f"{{}}state:{job.id}", run_of(values))
        if job is held[1]:
            assert [one.id for one in (await claim(store, claim_id="c")).jobs] == [held[0].id, held[2].id, held[3].id]
    clock.advance(31)
    assert [job.id for job in await store.overdue(10)] == [held[0].id, held[3].id]
    for job in held[1:3]:
        bad = await get(store, job.id)
        assert (bad.status, bad.due_us) == ("failed", 0)
        assert bad.last_error is not None and "due_us" in bad.last_error.message


@pytest.mark.parametrize("how", DAMAGE)
async def test_get_and_find_show_what_they_can(store: RedisStore, how: str) -> None:
    """A damaged job is shown with the reason as its last error, and nothing is changed by looking."""
    jobs = [new_job() for _ in range(3)]
    await store.insert(jobs)
    field = await damage(store, jobs[1].id, how)
    before = await keys(store)
    shown = await get(store, jobs[1].id)
    assert shown.last_error is not None and field in shown.last_error.message
    assert [job.id for job in (await store.find(Query(), 10)).jobs] == [job.id for job in reversed(jobs)]
    assert len((await store.find(Query(task="work"), 10)).jobs) in (2, 3)
    assert await keys(store) == before


async def test_requeued_damage_is_quarantined_again(store: RedisStore) -> None:
    """A job that is still damaged when an operator sends it back is claimed by nobody."""
    job = new_job()
    await store.insert([job])
    await damage(store, job.id, "body is no MessagePack")
    await claim(store)
    [verdict] = await store.settle([requeue(await get(store, job.id))])
    assert verdict.applied
    assert (await claim(store, ask(lane="retry"))).jobs == []
    assert (await get(store, job.id)).status == "failed"


async def test_damaged_records_and_events_are_passed_over(store: RedisStore) -> None:
    """A history record or an event that cannot be decoded hides nothing else."""
    await store.insert([job := new_job()])
    for _ in range(3):
        await store.settle([retry((await claim(store)).jobs[0])])
    await command(store, "LSET", f"{{}}history:{job.id}", 4, b"\xc1")
    entries = await command(store, "XRANGE", "{}events", "-", "+")
    await command(store, "DEL", "{}events")
    for place, (name, entry) in enumerate(entries):
        await command(store, "XADD", "{}events", name, "at", entry[b"at"], "events", entry[b"events"] if place != 1 else b"\xc1")
    assert [record.outcome for record in (await get(store, job.id)).history] == ["failure", "undecodable", "failure"]
    assert [event.seq for event in await all_events(store)] == [1, 2, 5, 6]


async def test_a_history_of_another_kind_stops_nobody(store: RedisStore) -> None:
    """A claim takes the last error from there; where there is no list, the job has none, and the others are claimed as well."""
    jobs = [new_job() for _ in range(3)]
    await store.insert(jobs)
    changes = [retry(job, 0) for job in (await claim(store)).jobs]
    await store.settle([replace(change, record=replace(change.record, error=change.error)) for change in changes])
    await command(store, "DEL", f"{{}}history:{jobs[1].id}")
    await command(store, "SET", f"{{}}history:{jobs[1].id}", "x")
    claimed = {job.id: job for job in (await claim(store)).jobs}
    assert set(claimed) == {job.id for job in jobs}
    assert [claimed[job.id].last_error is None for job in jobs] == [False, True, False]


async def test_a_claim_that_drops_an_entry_begins_anew(store: RedisStore) -> None:
    """Where an index names a job that is gone, the others are answered once each, and one that is damaged is told of once."""
    jobs = [new_job() for _ in range(3)]
    await store.insert(jobs)
    await damage(store, jobs[0].id, "body is gone")
    await command(store, "DEL", f"{{}}state:{jobs[1].id}", f"{{}}body:{jobs[1].id}")
    assert [job.id for job in (await claim(store)).jobs] == [jobs[2].id]
    assert [(event.kind, event.job_id) for event in await all_events(store)] == [("FAILED", jobs[0].id)]
