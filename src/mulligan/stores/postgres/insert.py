"""New jobs into the table: one call of the server's function for a whole batch."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import asyncpg
from msgspec.structs import replace

from mulligan.core.contract import Inserted
from mulligan.core.job import NewJob
from mulligan.stores.postgres.database import Database, Transaction
from mulligan.stores.postgres.rows import to_json
from mulligan.stores.postgres.writes import joined

INSERT = """
SELECT at_us, answers FROM {s}.insert_jobs($1::bigint, $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[],
  $8::integer[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::text[], $14::text[], $15::text[], $16::text[],
  $17::text[], $18::text[], $19::text[], $20::bigint[], $21::boolean)
"""
PARAMETERS = 21
INSERT_ALIKE = """
SELECT at_us, stored FROM {s}.insert_alike($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
"""
# One job that nothing stands in the way of, as most that are enqueued by themselves: half of what the function costs. A known id is an
# error, which is rare; ON CONFLICT would have each job look through the indexes twice, and be confirmed by a second write.
INSERT_ONE = """
INSERT INTO {s}.jobs (id, queue, task, payload, policy, max_retries, priority, lane, status, run_at_us, created_at_us, updated_at_us,
  due_first_us, due_us, timeout_us, max_age_us, tags, trace)
SELECT $2, $3, $4, $5, $6, $7, $8, 'fresh', 'pending', t.at_us + $9, t.at_us, t.at_us, t.at_us + $9, t.at_us + $9, $10, $11, $12, $13
FROM (SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS at_us OFFSET 0) AS t
RETURNING created_at_us
"""


async def insert(database: Database, jobs: Sequence[NewJob]) -> list[Inserted]:
    """Stores new jobs; see Inserted for what a known id or a taken unique key answers."""
    now_us = database.now_us()
    if len(jobs) == 1 and is_plain(jobs[0]):
        with contextlib.suppress(asyncpg.UniqueViolationError):
            row = await database.row(INSERT_ONE, *_params_of_one(jobs[0], now_us))
            return [Inserted(id=jobs[0].id, created=True, at_us=row[0])]
    if is_repetitive(jobs):
        return await database.within(lambda transaction: insert_within(transaction, jobs, now_us))
    if is_alike(jobs) and (params := _params_alike(jobs, now_us)):
        at_us, stored = await database.row(INSERT_ALIKE, *params)
        if stored:
            return answers_of(jobs, at_us, None)
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


def is_plain(job: NewJob) -> bool:
    """Whether a job has no key, no group, no schedule, and does not lie in the past."""
    keys = (job.unique_key, job.concurrency_key, job.fair_key, job.group, job.eta_us, job.schedule, job.tick_us)
    return job.delay_us >= 0 and keys.count(None) == len(keys)


def is_alike(jobs: Sequence[NewJob]) -> bool:
    """Whether jobs differ in their ids and payloads only, and none has a key of its own, a schedule or a time that may lie in the past."""
    if len(jobs) < 2:
        return False
    first = jobs[0]
    if first.delay_us < 0 or (first.unique_key, first.eta_us, first.schedule, first.tick_us) != (None,) * 4:
        return False
    like = replace(first, id="", payload="")
    return all([replace(job, id="", payload="") == like for job in jobs])  # noqa: C419 - a list takes half as long as a generator


def _params_alike(jobs: Sequence[NewJob], now_us: int | None) -> list[Any] | None:
    """The parameters of INSERT_ALIKE: what all share goes once, and the rest joined. None if it cannot be."""
    first = jobs[0]
    ids, payloads = joined([job.id for job in jobs], ","), joined([job.payload for job in jobs], "\n")
    if ids is None or payloads is None:
        return None
    described = [first.queue, first.task, first.policy, first.max_retries, first.priority, first.delay_us, first.timeout_us]
    keys = [first.max_age_us, first.concurrency_key, first.fair_key, first.group]
    return [now_us, ids, payloads, *described, *keys, _tags_of(first), first.trace]


def _params_of_one(job: NewJob, now_us: int | None) -> list[Any]:
    described = [job.id, job.queue, job.task, job.payload, job.policy, job.max_retries, job.priority]
    return [now_us, *described, job.delay_us, job.timeout_us, job.max_age_us, _tags_of(job), job.trace]


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
        [_tags_of(job) for job in jobs],
        [job.trace for job in jobs],
        [job.schedule for job in jobs],
        [job.tick_us for job in jobs],
        is_late,
    ]


def _tags_of(job: NewJob) -> str:
    return to_json(job.tags) if job.tags else "[]"


def _groups_of(jobs: Sequence[NewJob]) -> list[str | None] | None:
    """The groups of the jobs; None if not one of them has any, which is the common case, and costs the server nothing."""
    groups = [job.group for job in jobs]
    return groups if any(group is not None for group in groups) else None


def answers_of(jobs: Sequence[NewJob], at_us: int, standing: Sequence[str] | None) -> list[Inserted]:
    """The answers, from the ids that now stand for the jobs (None: each for itself)."""
    if standing is None:
        return [Inserted(id=job.id, created=True, at_us=at_us) for job in jobs]
    return [Inserted(id=found, created=found == job.id, at_us=at_us) for job, found in zip(jobs, standing, strict=True)]
