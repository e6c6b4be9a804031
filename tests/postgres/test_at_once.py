"""Batches of any outcomes that are settled by one statement, and those that are not."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import pytest

from mulligan.core.change import Change, Verdict
from mulligan.core.job import ErrorInfo, Job
from mulligan.stores.postgres import PostgresStore
from mulligan.stores.postgres.at_once import settle_at_once
from tests.builders import LEASE_S, ask, cancelled, crash, done, failed, fresh_id, get, new_job, record, release, retry, snooze, us
from tests.postgres.conftest import Raw

# What the statement puts the time in place of, as a text that a handler might raise.
SLY = '"ended_at_us":null, "at_us":0, "run_at_us":null, {"ended_at_us":null}'


async def claimed(store: PostgresStore, count: int) -> Sequence[Job]:
    """So many jobs under one claim."""
    await store.insert([new_job() for _ in range(count)])
    return (await store.claim(fresh_id(), "me", [ask()], count, us(LEASE_S))).jobs


async def at_once(store: PostgresStore, changes: Sequence[Change]) -> list[Verdict] | None:
    """What the one statement says."""
    return await store._call(lambda: settle_at_once(store._db, changes))


def sly(job: Job) -> Change:
    """A failure with an error that looks like what is left open."""
    error = ErrorInfo(type=SLY, message=SLY, code=SLY)
    why = f"because of {SLY}"
    told = msgspec.structs.replace(record(job, "failure", 5), error=error, why=why, worker=SLY)
    return retry(job, 5, error=error, record=told, why=why, worker=SLY)


async def test_outcomes_of_every_kind_are_written_by_one_statement(real: PostgresStore, raw: Raw) -> None:
    """Rows, histories and events are those of the steps, with the times of the write, and texts as they were given."""
    ends: list[Callable[[Job], Change]] = [done, sly, failed, lambda job: snooze(job, 7), lambda job: release(job, 9), cancelled]
    stored = {}
    for way in ("at once", "in steps"):
        jobs = await claimed(real, len(ends))
        changes = [end(job) for end, job in zip(ends, jobs, strict=True)]
        if way == "at once":
            verdicts = await at_once(real, changes)
        else:  # a change that is refused takes the batch through the steps
            verdicts = (await real.settle([*changes, crash(jobs[0])]))[:-1]
        assert verdicts is not None
        assert all(verdict.applied for verdict in verdicts)
        [at_us] = {verdict.at_us for verdict in verdicts}
        ids = {job.id: number for number, job in enumerate(jobs)}
        found = [await get(real, job.id) for job in jobs]
        assert [job.run_at_us for job in found] == [verdict.run_at_us for verdict in verdicts]
        assert {one.ended_at_us for job in found for one in job.history} == {at_us}
        events = [event for event in await real.read_events(0, 1_000) if event.job_id in ids]
        assert {event.at_us for event in events} == {at_us}
        stored[way] = (
            [(job.status, job.lane, job.last_error, job.failures, job.attempts, (job.run_at_us or at_us) - at_us) for job in found],
            [msgspec.structs.replace(one, ended_at_us=0, started_at_us=0) for job in found for one in job.history],
            [(event.kind, ids[event.job_id], event.worker, event.attempt, without_time(event.detail, at_us)) for event in events],
        )
    assert stored["at once"] == stored["in steps"]
    rows, histories, events = stored["at once"]
    assert [row[0] for row in rows] == ["done", "pending", "failed", "pending", "pending", "cancelled"]
    assert rows[1][2].message == histories[0].error.message == SLY
    assert [event[0] for event in events] == ["FAILED", "RETRY_SCHEDULED", "FAILED", "SNOOZED", "CANCELLED"]
    assert dict(raw.rows("SELECT status, sum(jobs) FROM {s}.tallies GROUP BY status")) == {"done": 2, "failed": 2, "cancelled": 2}


def without_time(detail: dict[str, object], at_us: int) -> dict[str, object]:
    """The time of a retry, counted from the write."""
    run_at_us = detail.get("run_at_us")
    return detail | {"run_at_us": run_at_us - at_us} if isinstance(run_at_us, int) else detail


async def _taken_over(store: PostgresStore, job: Job) -> None:
    await store.settle([release(job)])
    await store.claim(fresh_id(), "other", [ask()], 10, us(LEASE_S))


async def _to_be_cancelled(store: PostgresStore, job: Job) -> None:
    await store.request_cancel([job.id])


@pytest.mark.parametrize("happens, ends_as", [(_taken_over, "processing"), (_to_be_cancelled, "cancelled")])
async def test_one_that_does_not_hold_leaves_nothing_behind(
    real: PostgresStore, happens: Callable[[PostgresStore, Job], object], ends_as: str
) -> None:
    """All of the batch goes back, records and events too, and the steps then settle what can be settled, once."""
    good, bad = await claimed(real, 2)
    await happens(real, bad)  # type: ignore[misc]
    seen = len(await real.read_events(0, 1_000))
    changes = [retry(good, 5), retry(bad, 5)]
    assert await at_once(real, changes) is None
    assert (await get(real, good.id)).status == "processing"
    assert (await get(real, good.id)).history == ()
    assert len(await real.read_events(0, 1_000)) == seen
    verdicts = await real.settle(changes)
    assert (verdicts[0].applied, verdicts[0].status, verdicts[1].status) == (True, "pending", ends_as)
    assert len((await get(real, good.id)).history) == 1


async def test_a_repeat_is_known(real: PostgresStore) -> None:
    """After an answer that was lost the same batch answers the same, and writes nothing more."""
    jobs = await claimed(real, 3)
    changes = [retry(jobs[0], 5), failed(jobs[1]), done(jobs[2])]
    first = await at_once(real, changes)
    assert first is not None
    events = await real.read_events(0, 1_000)
    again = await real.settle(changes)
    assert [(one.applied, one.status, one.run_at_us) for one in again] == [(one.applied, one.status, one.run_at_us) for one in first]
    assert await real.read_events(0, 1_000) == events
    assert [len((await get(real, job.id)).history) for job in jobs] == [1, 1, 0]


async def test_the_oldest_records_of_a_long_life_are_dropped(real: PostgresStore, raw: Raw) -> None:
    """Fifty are kept, also where one statement writes them."""
    [job] = await claimed(real, 1)
    for _ in range(52):
        assert await at_once(real, [retry(job)]) is not None
        [job] = (await real.claim(fresh_id(), "me", [ask(lane="retry")], 1, us(LEASE_S))).jobs
    assert raw.rows("SELECT count(*) FROM {s}.history") == [(50,)]


@pytest.mark.parametrize("what", ["the same job twice", "a takeover", "nothing"])
async def test_what_has_to_be_looked_at(real: PostgresStore, what: str) -> None:
    """Such a batch is not tried."""
    [job] = await claimed(real, 1)
    batches = {"the same job twice": [retry(job), done(job)], "a takeover": [crash(job)], "nothing": []}
    assert await at_once(real, batches[what]) is None
    assert (await get(real, job.id)).status == "processing"
