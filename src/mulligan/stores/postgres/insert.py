"""New jobs into the table: one call of the server's function for a whole batch."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from mulligan.core.contract import Inserted
from mulligan.core.job import NewJob
from mulligan.stores.postgres.database import Database, Transaction
from mulligan.stores.postgres.rows import to_json

INSERT = """
SELECT at_us, answers FROM {s}.insert_jobs($1::bigint, $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[],
  $8::integer[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::text[], $14::text[], $15::text[], $16::text[],
  $17::text[], $18::text[], $19::text[], $20::bigint[], $21::boolean)
"""
PARAMETERS = 21


async def insert(database: Database, jobs: Sequence[NewJob]) -> list[Inserted]:
    """Stores new jobs; see Inserted for what a known id or a taken unique key answers."""
    now_us = database.now_us()
    if is_repetitive(jobs):
        return await database.within(lambda transaction: insert_within(transaction, jobs, now_us))
    return await _insert_parts(database.row, jobs, now_us)


async def insert_within(transaction: Transaction, jobs: Sequence[NewJob], now_us: int | None) -> list[Inserted]:
    """The same in a transaction that is open already."""
    return await _insert_parts(transaction.row, jobs, now_us)


async def _insert_parts(row_of: Callable[..., Awaitable[Any]], jobs: Sequence[NewJob], now_us: int | None) -> list[Inserted]:
    answers: dict[int, Inserted] = {}
    for places in parts_of(jobs):
        part = [jobs[place] for place in places]
        row = await row_of(INSERT, *params_of(part, now_us))
        answers.update(zip(places, answers_of(part, row[0], row[1]), strict=True))
    return in_order(answers)


def parts_of(jobs: Sequence[NewJob]) -> list[Sequence[int]]:
    """What can be written at once, as the places of the jobs, in the order in which they are written.

    What the second of two with one id answers depends on what became of the first, so these are written one by one. Others go by their
    unique keys: whoever writes a key makes others who bring it wait for the commit, so two batches with the same keys in different
    orders would wait for each other.
    """
    places = range(len(jobs))
    if is_repetitive(jobs):
        return [[place] for place in places]
    if all(job.unique_key is None for job in jobs):
        return [places] if jobs else []
    return [sorted(places, key=lambda place: (jobs[place].queue, jobs[place].unique_key or ""))]


def in_order(answers: Mapping[int, Inserted]) -> list[Inserted]:
    """The answers in the order of the jobs, from their places."""
    return [answers[place] for place in range(len(answers))]


def is_repetitive(jobs: Sequence[NewJob]) -> bool:
    """Whether an id is there more than once."""
    return len({job.id for job in jobs}) < len(jobs)


def params_of(jobs: Sequence[NewJob], now_us: int | None, *, is_late: bool = False) -> list[Any]:
    """The parameters of INSERT. `is_late`: the commit is somebody else's, and may come any time later."""
    return [
        now_us,
        [job.id for job in jobs],
        [job.queue for job in jobs],
        [job.task for job in jobs],
        [job.payload for job in jobs],
        [job.policy for job in jobs],
        [job.max_retries for job in jobs],
        [job.priority for job in jobs],
        [job.delay_us for job in jobs],
        [job.eta_us for job in jobs],
        [job.timeout_us for job in jobs],
        [job.max_age_us for job in jobs],
        [job.unique_key for job in jobs],
        [job.concurrency_key for job in jobs],
        [job.fair_key for job in jobs],
        _groups_of(jobs),
        [to_json(job.tags) if job.tags else "[]" for job in jobs],
        [job.trace for job in jobs],
        [job.schedule for job in jobs],
        [job.tick_us for job in jobs],
        is_late,
    ]


def _groups_of(jobs: Sequence[NewJob]) -> list[str | None] | None:
    """The groups of the jobs; None if not one of them has any, which is the common case, and costs the server nothing."""
    groups = [job.group for job in jobs]
    return groups if any(group is not None for group in groups) else None


def answers_of(jobs: Sequence[NewJob], at_us: int, standing: Sequence[str] | None) -> list[Inserted]:
    """The answers, from the ids that now stand for the jobs (None: each for itself)."""
    if standing is None:
        return [Inserted(id=job.id, created=True, at_us=at_us) for job in jobs]
    return [Inserted(id=found, created=found == job.id, at_us=at_us) for job, found in zip(jobs, standing, strict=True)]
