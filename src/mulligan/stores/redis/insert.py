"""Storing jobs: new ones, and those of another store."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec

from mulligan.core.contract import Inserted
from mulligan.core.errors import StoreRejected
from mulligan.core.job import HISTORY_MAX, Job, NewJob
from mulligan.core.receipt import Receipt
from mulligan.stores.redis.layout import blob, body_of, encode, extra_blob, record_blobs, run_of, state_of
from mulligan.stores.redis.newjobs import argument, kind_of, new_rows
from mulligan.stores.redis.receipts import receipt_run
from mulligan.stores.redis.server import Answer, BlockingServer, Server

# A script blocks the server while it runs, so long lists go in portions. Each is written whole or not at all.
PORTION_JOBS = 500
RESTORE_JOBS = 50  # fewer, because they come with their histories
PORTION_BYTES = 8 * 1024 * 1024


Call = tuple[Any, ...]  # a script's name and its arguments


def _call_alone(job: NewJob, channel: str = "") -> Call | None:
    """The call that stores a job that needs nothing but keys of its own, and sends a hint to the channel, if one is given."""
    kind = kind_of(job)
    return ("insert_one", job.id, kind.body(job), *kind.where, channel) if kind.is_plain else None


def _stored_alone(job: NewJob, answer: Answer) -> list[Inserted] | None:
    """What that call answers; None if the id is known, and then it has done nothing."""
    return [Inserted(id=job.id, created=True, at_us=answer.now_us)] if answer.values[0] else None


async def insert_alone(server: Server, job: NewJob, channel: str) -> list[Inserted] | None:
    """Stores a job that comes by itself, and sends a hint along. None, and neither of them, if it needs more than keys of its own, or is
    known."""
    call = _call_alone(job, channel)
    return None if call is None else _stored_alone(job, await server.run(*call))


def insertion(jobs: Sequence[NewJob]) -> Generator[Call, Answer, list[Inserted]]:
    """The calls that store new jobs, each of which it is sent the answer of; see Inserted for what it answers in the end."""
    if len(jobs) == 1 and (call := _call_alone(jobs[0])) is not None:
        alone = _stored_alone(jobs[0], (yield call))
        if alone is not None:
            return alone
    inserted: list[Inserted] = []
    for portion in portions(new_rows(jobs)):
        answer = yield ("insert", encode(argument(portion)))
        others = answer.values[0]
        stand_ins = {place - 1: owner.decode() for place, owner in zip(others[::2], others[1::2], strict=True)}
        for place, (_, job_id, _) in enumerate(portion):
            owner = stand_ins.get(place)
            inserted.append(Inserted(id=owner or job_id, created=owner is None, at_us=answer.now_us))
    return inserted


async def insert(server: Server, jobs: Sequence[NewJob]) -> list[Inserted]:
    """Stores new jobs, on an event loop."""
    calls = insertion(jobs)
    try:
        call = next(calls)
        while True:
            call = calls.send(await server.run(*call))
    except StopIteration as end:
        return cast("list[Inserted]", end.value)


def insert_now(server: BlockingServer, jobs: Sequence[NewJob]) -> list[Inserted]:
    """Stores new jobs, on a thread that blocks."""
    calls = insertion(jobs)
    try:
        call = next(calls)
        while True:
            call = calls.send(server.run(*call))
    except StopIteration as end:
        return cast("list[Inserted]", end.value)


def _size(row: tuple[Any, ...]) -> int:
    body: msgspec.Raw = row[-1]
    return memoryview(body).nbytes


def portions(
    rows: Sequence[tuple[Any, ...]], jobs_max: int = PORTION_JOBS, size_of: Callable[[tuple[Any, ...]], int] = _size
) -> Iterator[list[tuple[Any, ...]]]:
    """The rows in their order, in lists that are bounded in length and size. The last value of a row counts for its size."""
    portion: list[tuple[Any, ...]] = []
    size = 0
    for row in rows:
        more = size_of(row)
        if portion and (len(portion) >= jobs_max or size + more > PORTION_BYTES):
            yield portion
            portion, size = [], 0
        portion.append(row)
        size += more
    if portion:
        yield portion


async def restore(server: Server, jobs: Sequence[Job], receipts: Mapping[str, Sequence[Receipt]]) -> list[bool]:
    """Stores jobs of another store as they were there; False for an id that is there already."""
    stored: list[bool] = []
    for portion in portions([_whole_row(job, receipts.get(job.id, ())) for job in jobs], RESTORE_JOBS, _whole_size):
        answer = await server.run("restore", encode(portion))
        taken, flags = answer.values
        if taken:
            job_id = portion[taken - 1][0]
            raise StoreRejected(f"job {job_id} is alive, and its unique key belongs to another live job of its queue; end one of the two")
        stored += [bool(flag) for flag in flags]
    return stored


def _whole_row(job: Job, receipts: Sequence[Receipt]) -> tuple[Any, ...]:
    """A job as lua/restore.lua takes it."""
    history = [
        value for record in job.history[-HISTORY_MAX:] for value in (blob(run_of((record.ended_at_us or 0,))), *record_blobs(record))
    ]
    kept = [value for receipt in receipts for value in (receipt.name, blob(receipt_run(receipt)))]
    return (job.id, blob(state_of(job)), blob(body_of(job)), extra_blob(job.last_error, job.result_json), history, kept)


def _whole_size(row: tuple[Any, ...]) -> int:
    return memoryview(row[2]).nbytes + sum(memoryview(text).nbytes for text in row[5][1::2])
