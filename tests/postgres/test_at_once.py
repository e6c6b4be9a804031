"""Which batches PostgreSQL settles by one statement, and that it writes all of such a batch or nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from mulligan.core.change import Change, Verdict
from mulligan.core.job import ErrorInfo, HistoryRecord, Job
from mulligan.stores.postgres import PostgresStore
from mulligan.stores.postgres.at_once import settle_at_once
from tests.builders import crash, done, get, release, retry
from tests.conformance.ends import EVERY_END, claimed
from tests.postgres.conftest import Raw


def record(job: Job, error: ErrorInfo) -> HistoryRecord:
    """One of an attempt that raised."""
    return HistoryRecord(generation=job.generation, fence=job.fence, attempt=job.attempts, outcome="failure", error=error)


async def at_once(store: PostgresStore, changes: Sequence[Change]) -> list[Verdict] | None:
    """What the one statement says."""
    return await store._call(lambda: settle_at_once(store._db, changes))


async def test_any_outcomes_of_held_jobs_are_one_statement(real: PostgresStore, raw: Raw) -> None:
    """All of them are written, and the resting ones are counted."""
    jobs = await claimed(real, len(EVERY_END))
    verdicts = await at_once(real, [end(job) for end, job in zip(EVERY_END, jobs, strict=True)])
    assert verdicts is not None
    assert [verdict.status for verdict in verdicts] == [(await get(real, job.id)).status for job in jobs]
    assert all(verdict.applied for verdict in verdicts)
    assert dict(raw.rows("SELECT status, sum(jobs) FROM {s}.tallies GROUP BY status")) == {"done": 2, "failed": 1, "cancelled": 1}


@pytest.mark.parametrize("odd", [{}, {"settle_id": "s,1"}, {"result_json": '"a,b"'}])
async def test_successes_keep_their_own_ids_and_results(real: PostgresStore, odd: dict[str, str]) -> None:
    """What travels as one text comes apart where it was joined, also where a text has what joins the others."""
    jobs = await claimed(real, 3)
    changes = [done(job) for job in jobs]
    changes[1] = replace(changes[1], **odd)
    verdicts = await at_once(real, changes)
    assert verdicts is not None
    stored = [await get(real, job.id) for job in jobs]
    assert [(job.status, job.settle_id, job.result_json) for job in stored] == [("done", c.settle_id, c.result_json) for c in changes]


async def test_failures_keep_their_own_errors_and_records(real: PostgresStore) -> None:
    """Errors and records that travel as one text each come apart where they were joined; a change without an error has none."""
    jobs = await claimed(real, 4)
    errors = [ErrorInfo(type="E", message=text) for text in ("one, two", "a\nb", "", "\\n 日本")]
    changes = [retry(job, error=error, record=record(job, error)) for job, error in zip(jobs, errors, strict=True)]
    changes[2] = release(jobs[2])
    assert await at_once(real, changes) is not None
    stored = [await get(real, job.id) for job in jobs]
    assert [job.last_error for job in stored] == [errors[0], errors[1], None, errors[3]]
    assert [[one.error for one in job.history] for job in stored] == [[errors[0]], [errors[1]], [None], [errors[3]]]


async def test_a_settle_id_that_cannot_be_joined_is_left_to_the_steps(real: PostgresStore) -> None:
    """It has what joins the others; nothing of the batch is written by the one statement."""
    [first, second] = await claimed(real, 2)
    batch = [retry(first, 5), replace(retry(second, 5), settle_id="s,1")]
    assert await at_once(real, batch) is None
    assert all(verdict.applied for verdict in await real.settle(batch))
    assert (await get(real, second.id)).settle_id == "s,1"


async def _given_back(store: PostgresStore, job: Job) -> None:
    await store.settle([release(job)])


async def _to_be_cancelled(store: PostgresStore, job: Job) -> None:
    await store.request_cancel([job.id])


@pytest.mark.parametrize("happens", [_given_back, _to_be_cancelled])
async def test_one_that_does_not_hold_takes_the_others_back(real: PostgresStore, happens: Callable[[PostgresStore, Job], Any]) -> None:
    """Rows, records and events: the steps find everything as it was."""
    good, bad = await claimed(real, 2)
    await happens(real, bad)
    events = await real.read_events(0, 1_000)
    assert await at_once(real, [retry(good, 5), retry(bad, 5)]) is None
    assert (await get(real, good.id)).status == "processing"
    assert (await get(real, good.id)).history == ()
    assert await real.read_events(0, 1_000) == events


@pytest.mark.parametrize("batch", ["the same job twice", "a takeover", "nothing"])
async def test_what_has_to_be_looked_at_is_not_tried(real: PostgresStore, batch: str) -> None:
    """A change may depend on the one before it, or on more than a fence."""
    [job] = await claimed(real, 1)
    batches = {"the same job twice": [retry(job), done(job)], "a takeover": [crash(job)], "nothing": []}
    assert await at_once(real, batches[batch]) is None
    assert (await get(real, job.id)).status == "processing"
