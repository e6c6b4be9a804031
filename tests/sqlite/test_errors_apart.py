"""The error of a failure that is tried again stands in its record only, and is found from the job, whoever else writes the file."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from mulligan.core.change import Change
from mulligan.core.job import HISTORY_MAX, ErrorInfo, Job
from mulligan.stores.sqlite import SQLiteStore
from mulligan.stores.sqlite.rows import to_json
from tests.builders import claim, done, failed, get, put_and_claim, release, requeue, retry, snooze

ERROR = ErrorInfo(type="Err", message='quo"te ä', traceback="x" * 500, fingerprint="f", at_us=7)


async def errors_of(store: SQLiteStore, job: Job) -> list[ErrorInfo | None]:
    """The last error of a job, then those of its records."""
    found = await get(store, job.id)
    return [found.last_error, *(record.error for record in found.history)]


async def texts(store: SQLiteStore) -> list[tuple[str | None, int | None]]:
    """What stands with the jobs themselves."""
    found: list[tuple[str | None, int | None]] = await store._read(
        lambda t: t.rows("SELECT last_error, error_record FROM mulligan_jobs ORDER BY seq")
    )
    return found


async def settle(store: SQLiteStore, *changes: Change) -> None:
    assert all(verdict.applied for verdict in await store.settle(changes))


async def claimed_again(store: SQLiteStore) -> Job:
    [job] = (await claim(store)).jobs
    return job


async def test_it_stands_once_and_is_seen_by_all(store: SQLiteStore) -> None:
    """With the job there is nothing but the number of the record, of each job its own; the next claim and every look have the error."""
    jobs = [await put_and_claim(store) for _ in range(3)]
    errors = [replace(ERROR, message=str(number)) for number in range(3)]
    await settle(store, *(retry(job, error=error) for job, error in zip(jobs, errors, strict=True)), done(await put_and_claim(store)))
    assert await texts(store) == [(None, 1), (None, 2), (None, 3), (None, None)]
    again = (await claim(store, total=3)).jobs
    assert [job.last_error for job in again] == errors
    assert [await errors_of(store, job) for job in jobs] == [[error, error] for error in errors]
    await settle(store, *(retry(job, error=ERROR) for job in again))
    assert [await errors_of(store, job) for job in jobs] == [[ERROR, error, ERROR] for error in errors]


@pytest.mark.parametrize("end", [release, snooze, failed, done])
async def test_what_follows_finds_or_replaces_it(store: SQLiteStore, end: Callable[..., Change]) -> None:
    """A release and a snooze keep the error that the job had, a failure has one of its own, a success none; a requeue keeps it as well."""
    await settle(store, retry(await put_and_claim(store), error=ERROR))
    job = await claimed_again(store)
    fields = {} if end is done else {"error": replace(ERROR, message="other") if end is failed else job.last_error}
    await settle(store, end(job, **fields))
    [found, *_] = await errors_of(store, job)
    assert found == fields.get("error")
    if end is failed:
        await settle(store, requeue(await get(store, job.id), error=found))
        assert (await claimed_again(store)).last_error == found


async def test_its_record_is_forgotten_last(store: SQLiteStore) -> None:
    """Beyond what is kept of a job's history, the newest failure's error is there still."""
    job = await put_and_claim(store)
    for number in range(HISTORY_MAX + 3):
        await settle(store, retry(job, error=replace(ERROR, message=str(number))))
        job = await claimed_again(store)
    found = await errors_of(store, job)
    assert [error and error.message for error in found] == [str(HISTORY_MAX + 2), *map(str, range(3, HISTORY_MAX + 3))]


@pytest.mark.parametrize(
    "old, expected",
    [
        ("status = 'done', finished_at_us = 1, run_at_us = NULL, last_error = NULL", None),
        (f"last_error = '{to_json(replace(ERROR, message='old'))}'", replace(ERROR, message="old")),
        ("fence = fence + 1, attempts = attempts + 1", ERROR),
    ],
)
async def test_a_process_of_the_version_before_goes_on_writing(store: SQLiteStore, old: str, expected: ErrorInfo | None) -> None:
    """It leaves the number of the record as it is: its own error counts, and a job that succeeded has none."""
    job = await put_and_claim(store)
    await settle(store, retry(job, error=ERROR))
    await store._write(lambda t: t.run(f"UPDATE mulligan_jobs SET {old}"))
    [found, noted] = await errors_of(store, job)
    assert (found, noted) == (expected, ERROR)


async def test_a_number_that_leads_elsewhere_shows_nothing(store: SQLiteStore) -> None:
    """The record of another job is never taken for its own."""
    jobs = [await put_and_claim(store) for _ in range(2)]
    await settle(store, *(retry(job, error=ERROR) for job in jobs))
    await store._write(lambda t: t.run("UPDATE mulligan_jobs SET error_record = 2"))
    assert [job.last_error for job in (await claim(store, total=2)).jobs] == [None, ERROR]


async def test_a_damaged_error_hides_no_other_record(store: SQLiteStore) -> None:
    """It is shown as a record that cannot be decoded."""
    job = await put_and_claim(store)
    await settle(store, retry(job, error=ERROR))
    await settle(store, retry(await claimed_again(store), error=ERROR))
    await store._write(lambda t: t.run("UPDATE mulligan_history SET error = '{' WHERE seq = 1"))
    assert [record.outcome for record in (await get(store, job.id)).history] == ["undecodable", "failure"]
