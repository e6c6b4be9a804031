from __future__ import annotations

from typing import Any

import pytest

from mulligan.core.clock import ManualClock
from mulligan.core.contract import Query
from mulligan.stores.redis import RedisStore
from mulligan.stores.redis.layout import blob, run_of
from tests.builders import all_events, ask, claim, fifo, get, new_job, requeue, retry
from tests.redis.keys import command, keys

GOOD_LIMITS = blob(run_of((None, None)))
# What somebody may have done to the keys of a job, and what the reason must name.
DAMAGE: dict[str, tuple[str, Any, str]] = {
    "body is gone": ("body", None, "task"),
    "body is no MessagePack": ("body", b"\xc1\xff", "task"),
    "body has other parts": ("body", run_of((1, 2, 3)), "task"),
    "payload is a number": (
        "body",
        run_of((blob(run_of(("x", "q", "work", 5, "{}", 3, 0))), GOOD_LIMITS, blob(run_of((None,) * 5 + ((), None))))),
        "payload",
    ),
    "tags are a map": (
        "body",
        run_of((blob(run_of(("x", "q", "work", "{}", "{}", 3, 0))), GOOD_LIMITS, blob(run_of((None,) * 5 + ({"a": 1}, None))))),
        "tags",
    ),
    "state is no MessagePack": ("state", b"\xc1\xff\xff", "created_at_us"),
    "state is short": ("state", run_of(("pending", 1)), "created_at_us"),
}


async def damage(store: RedisStore, job_id: str, how: str) -> str:
    """Damages the job; the field that is wrong now."""
    kind, value, field = DAMAGE[how]
    if value is None:
        await command(store, "DEL", f"{{}}{kind}:{job_id}")
    else:
        await command(store, "SET", f"{{}}{kind}:{job_id}", value)
    return field


@pytest.mark.parametrize("by_age", [False, True])
@pytest.mark.parametrize("how", DAMAGE)
async def test_claim_quarantines_what_it_cannot_decode(store: RedisStore, how: str, by_age: bool) -> None:
    """The damaged job is set to failed with the reason, record and event; the others are claimed at once."""
    jobs = [new_job() for _ in range(3)]
    await store.insert(jobs)
    field = await damage(store, jobs[1].id, how)
    claimed = await claim(store, fifo() if by_age else ask())
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
    await command(store, "LSET", f"{{}}history:{job.id}", 1, b"\xc1")
    await command(store, "LSET", "{}events", 1, b"\xc1")
    assert [record.outcome for record in (await get(store, job.id)).history] == ["failure", "undecodable", "failure"]
    assert [event.seq for event in await all_events(store)] == [1, 3, 4, 5, 6]
