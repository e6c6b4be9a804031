"""Which batches take the short ways through Redis, and that one that cannot writes nothing there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from mulligan.core.change import Change, Verdict
from mulligan.core.groups import group_of
from mulligan.core.job import ErrorInfo, Job
from mulligan.stores.redis import RedisStore
from mulligan.stores.redis.settle import _at_once
from tests.builders import crash, done, get, record, release, retry
from tests.conformance.ends import EVERY_END, claimed
from tests.redis.keys import command, figures


async def at_once(store: RedisStore, changes: Sequence[Change]) -> list[Verdict]:
    """What the short way says."""
    server = store._server
    assert server is not None
    return await store._call(lambda: _at_once(server, changes))


@pytest.mark.parametrize("group", [None, group_of("tenant", "stripe", None, None)])
async def test_any_outcomes_of_held_jobs_take_a_short_way(store: RedisStore, group: str | None) -> None:
    """All of them are written, also where they wait in a group, as behind a downstream that is out of order."""
    jobs = await claimed(store, len(EVERY_END), group=group)
    verdicts = await at_once(store, [end(job) for end, job in zip(EVERY_END, jobs, strict=True)])
    assert [verdict.status for verdict in verdicts] == [(await get(store, job.id)).status for job in jobs]
    assert len(verdicts) == len(jobs)


async def test_a_failure_costs_one_command_of_its_own(own: RedisStore) -> None:
    """Its record goes to a list of its own; all else, the events too, is written for the whole batch."""
    jobs = await claimed(own, 500)
    await command(own, "CONFIG", "RESETSTAT")
    await at_once(own, [retry(job, 5) for job in jobs])
    stats = await figures(own)
    assert stats["cmdstat_evalsha"]["calls"] == 1
    assert stats["cmdstat_rpush"]["calls"] == 500
    assert stats["cmdstat_xadd"]["calls"] == 1
    assert sum(one["calls"] for one in stats.values()) < 500 + 30


async def _given_back(store: RedisStore, job: Job) -> None:
    await store.settle([release(job)])


async def _to_be_cancelled(store: RedisStore, job: Job) -> None:
    await store.request_cancel([job.id])


@pytest.mark.parametrize("happens", [_given_back, _to_be_cancelled])
async def test_one_that_does_not_hold_keeps_the_others_from_being_written(
    store: RedisStore, happens: Callable[[RedisStore, Job], Any]
) -> None:
    """Rows, records and events are as they were when the batch is judged change by change."""
    good, bad = await claimed(store, 2)
    await happens(store, bad)
    events = await store.read_events(0, 1_000)
    assert await at_once(store, [retry(good, 5), retry(bad, 5)]) == []
    assert (await get(store, good.id)).status == "processing"
    assert (await get(store, good.id)).history == ()
    assert await store.read_events(0, 1_000) == events


@pytest.mark.parametrize("batch", ["the same job twice", "a takeover", "nothing"])
async def test_what_has_to_be_judged_is_not_tried(store: RedisStore, batch: str) -> None:
    """A change may depend on the one before it, or on more than a fence."""
    [job] = await claimed(store, 1)
    batches = {"the same job twice": [retry(job), done(job)], "a takeover": [crash(job)], "nothing": []}
    assert await at_once(store, batches[batch]) == []
    assert (await get(store, job.id)).status == "processing"


async def test_errors_that_are_the_same_are_sent_once(own: RedisStore) -> None:
    """A storm has one reason. Each job's record has its own error all the same."""
    jobs = await claimed(own, 500)
    server = own._server
    assert server is not None
    sent: list[bytes] = []
    send = server._send

    async def counted(*words: Any) -> Any:
        sent.append(words[6])
        return await send(*words)

    server._send = counted
    errors = [ErrorInfo(type="Storm" if place % 5 else "Other", message="m" * 1_000) for place in range(len(jobs))]
    pairs = zip(jobs, errors, strict=True)
    await at_once(own, [retry(job, error=error, record=replace(record(job, "failure", 0), error=error)) for job, error in pairs])
    assert len(sent[-1]) < len(jobs) * 300
    assert [(await get(own, job.id)).history[0].error for job in jobs[:10]] == errors[:10]
    assert (await get(own, jobs[7].id)).last_error == errors[7]
