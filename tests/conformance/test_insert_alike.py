"""Batches of jobs that differ in nothing but their ids and payloads, which stores may write in a shorter way: nobody can tell which."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from mulligan.core.clock import Clock, ManualClock
from mulligan.core.contract import Store
from mulligan.core.job import NewJob, first_row
from tests.builders import all_jobs, ask, claim, done, fresh_id, full_state, get, grouped, new_job, put_and_claim, us

# What the jobs of a batch have in common. The last ones have to go the long way.
COMMON: dict[str, dict[str, Any]] = {
    "nothing special": {},
    "all but keys": {
        "task": "other",
        "policy": '{"max_retries":9}',
        "max_retries": None,
        "priority": 2,
        "delay_s": 1.5,
        "timeout_us": 7,
        "max_age_us": 8,
        "tags": ("a", "bé"),
        "trace": "00-1-2-01",
    },
    "a group": {"fair": "tenant", "on": "bank", "limited": "work", "key": "k"},
    "a time": {"eta_us": 1},
    "a schedule": {"schedule": "s", "tick_us": 5},
    "a delay before now": {"delay_s": -2},
}


def alike(number: int, **fields: Any) -> list[NewJob]:
    """So many jobs with the same fields, and payloads of their own."""
    return [grouped(**fields, payload=f'{{"args":[{place}],"kwargs":{{}}}}') for place in range(number)]


async def check_stored(store: Store, jobs: list[NewJob], at_us: int) -> None:
    """Each job is stored as it was asked for."""
    for job in jobs:
        row = await get(store, job.id)
        assert row == replace(first_row(job, at_us), read_at_us=row.read_at_us)


@pytest.mark.parametrize("common", COMMON)
async def test_like_jobs_are_stored_as_they_are_alone(store: Store, clock: ManualClock, common: str) -> None:
    """Every field of every job of a batch comes back, whatever the jobs have in common."""
    jobs = alike(5, **COMMON[common])
    answers = await store.insert(jobs)
    assert [(answer.id, answer.created, answer.at_us) for answer in answers] == [(job.id, True, clock.now_us()) for job in jobs]
    await check_stored(store, jobs, clock.now_us())


async def test_jobs_of_many_kinds_keep_their_own(store: Store, clock: ManualClock) -> None:
    """A batch in which all kinds alternate, with keys and without, is stored job for job."""
    jobs = [
        job for place in range(3) for fields in COMMON.values() for job in alike(2, **fields, unique_key=f"k{place}" if place else None)
    ]
    jobs = [replace(job, unique_key=job.unique_key and f"{job.unique_key}:{job.id}") for job in jobs]
    assert [answer.created for answer in await store.insert(jobs)] == [True] * len(jobs)
    await check_stored(store, jobs, clock.now_us())


@pytest.mark.parametrize("field", [name for name in NewJob.__struct_fields__ if name not in ("id", "payload", "group")])
async def test_one_that_differs_keeps_what_differs(store: Store, clock: ManualClock, field: str) -> None:
    """Of jobs that are alike but for one field of the last, that one is stored with its own."""
    others: dict[str, Any] = {"max_retries": 9, "priority": 1, "tags": ("x",)}
    other = others.get(field, 77 if field.endswith("_us") else "another")
    jobs = alike(3)
    jobs[-1] = replace(jobs[-1], **{field: other})
    await store.insert(jobs)
    await check_stored(store, jobs, clock.now_us())


async def test_a_repeat_of_like_jobs_changes_nothing(store: Store, clock: ManualClock) -> None:
    """A batch whose outcome was unknown is sent again: all are told that they were created, and nothing is written."""
    jobs = alike(4, fair="tenant")
    await store.insert(jobs)
    before = await full_state(store)
    again = [replace(job, payload='{"args":[9],"kwargs":{}}') for job in jobs]
    assert [(answer.id, answer.created) for answer in await store.insert(again)] == [(job.id, True) for job in jobs]
    assert await full_state(store) == before


async def test_like_jobs_of_which_some_are_known(store: Store, clock: ManualClock) -> None:
    """A batch that was stored in part is completed: what is known stays as it is, also what has ended, and the rest is stored."""
    ended = await put_and_claim(store)
    await store.settle([done(ended)])
    jobs = alike(5)
    await store.insert(jobs[1:3])
    first_us = clock.now_us()
    clock.advance(5)
    answers = await store.insert([new_job(id=ended.id), *jobs])
    assert [(answer.id, answer.created) for answer in answers] == [(job_id, True) for job_id in (ended.id, *(job.id for job in jobs))]
    assert (await get(store, ended.id)).status == "done"
    await check_stored(store, jobs[1:3], first_us)
    await check_stored(store, [jobs[0], *jobs[3:]], clock.now_us())


async def test_like_jobs_with_a_group_take_their_turns(store: Store) -> None:
    """Claims learn of the first jobs with groups that a queue gets, also when all of them are of one group."""
    one, other = alike(3, fair="one"), alike(3, fair="other")
    await store.insert(one)
    await store.insert(other)
    jobs = (await claim(store, ask(), total=4)).jobs
    assert sorted(job.fair_key or "" for job in jobs) == ["one", "one", "other", "other"]


async def test_the_same_batch_from_several_threads_is_stored_once(store_maker: Callable[[Clock | None], Store], clock: ManualClock) -> None:
    """Callers that send the same jobs at the same time, in any order, are all told that these were created; there is one of each."""
    stores = [store_maker(clock) for _ in range(4)]
    await asyncio.gather(*(store.open() for store in stores))
    jobs = [new_job(id=fresh_id()) for _ in range(40)]
    orders = [jobs, jobs, jobs[::-1], jobs[10:] + jobs[:10]]
    answers = await asyncio.gather(*(store.insert(order) for store, order in zip(stores, orders, strict=True)))
    for order, told in zip(orders, answers, strict=True):
        assert [(answer.id, answer.created) for answer in told] == [(job.id, True) for job in order]
    assert sorted(await all_jobs(stores[0])) == sorted(job.id for job in jobs)
    for store in stores:
        await store.close()


async def test_jobs_of_many_kinds_wait_in_their_own_lines(store: Store) -> None:
    """Of a batch in which kinds alternate, each ask gets those of its queue, priority and tenant."""
    kinds = [(queue, priority, fair) for queue in ("a", "b") for priority in (0, 2) for fair in (None, "one", "other")]
    jobs = [grouped(queue, priority=priority, fair=fair) for _ in range(2) for queue, priority, fair in kinds]
    await store.insert(jobs)
    for queue in ("a", "b"):
        for priority in (0, 2):
            found = (await claim(store, ask(queue, priority=priority))).jobs
            assert sorted(job.id for job in found) == sorted(job.id for job in jobs if (job.queue, job.priority) == (queue, priority))
    assert {count.queue for count in (await store.stats()).queues} == {"a", "b"}


async def test_a_delay_of_like_jobs_is_kept(store: Store, clock: ManualClock) -> None:
    """Jobs that all wait for the same time are not claimed before it, and are then."""
    await store.insert(alike(3, delay_s=10))
    assert (await claim(store)).jobs == []
    clock.advance(us(10) / 1e6)
    assert len((await claim(store)).jobs) == 3
