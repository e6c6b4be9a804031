"""New jobs, and jobs of another store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pymongo.errors import BulkWriteError

from mulligan.core.contract import Inserted
from mulligan.core.errors import StoreRejected, StoreUnavailable
from mulligan.core.job import Job, NewJob, first_row
from mulligan.core.receipt import Receipt
from mulligan.stores.mongo.database import Database, Doc
from mulligan.stores.mongo.groups import note_groups
from mulligan.stores.mongo.receipts import documents_of
from mulligan.stores.mongo.rows import document_of
from mulligan.stores.mongo.schema import live_key_of

_DUPLICATE_KEY = 11_000
_TRIES = 10
_JOBS_MAX = 1_000  # in one command


async def insert(database: Database, jobs: Sequence[NewJob]) -> list[Inserted]:
    """Stores new jobs; see Inserted for what a known id or a taken unique key answers."""
    await note_groups(database, jobs)
    now_us = await database.now_us()
    answers: list[Inserted] = []
    for at in range(0, len(jobs), _JOBS_MAX):
        answers += await _insert(database, jobs[at : at + _JOBS_MAX], now_us)
    return answers


async def _insert(database: Database, jobs: Sequence[NewJob], now_us: int) -> list[Inserted]:
    if len({job.id for job in jobs}) < len(jobs):
        # What the second of two with one id answers depends on what became of the first, so they are taken one after the other.
        return [answer for job in jobs for answer in await _insert(database, [job], now_us)]
    owners: dict[int, str] = {}  # by place: whoever has the unique key
    left = list(range(len(jobs)))
    for _ in range(_TRIES):
        refused = await write_new(database, [document_of(first_row(jobs[place], now_us)) for place in left])
        left = [left[place] for place in refused]
        if left:
            found = await _explained(database, [jobs[place] for place in left])
            owners |= {place: owner for place, owner in zip(left, found, strict=True) if owner is not None}
            # The owner of a key came to rest between the two calls: the key is free now.
            left = [place for place in left if place not in owners]
        if not left:
            return [
                Inserted(id=owners.get(place, job.id), created=owners.get(place, job.id) == job.id, at_us=now_us)
                for place, job in enumerate(jobs)
            ]
    raise StoreUnavailable("the owners of these unique keys change all the time; nothing is lost, the same call may be repeated")


async def write_new(database: Database, docs: Sequence[Doc]) -> list[int]:
    """Inserts what is new; the places of the others, whose id or unique key is there already."""
    try:
        await database.jobs.insert_many(docs, ordered=False)
    except BulkWriteError as problem:
        errors = problem.details["writeErrors"]
        if problem.details["writeConcernErrors"] or any(error["code"] != _DUPLICATE_KEY for error in errors):
            raise
        return sorted(error["index"] for error in errors)
    return []


async def _explained(database: Database, jobs: Sequence[NewJob]) -> list[str | None]:
    """Who stands for each job: itself, if its id is there, else the owner of its unique key; None if there is neither any more."""
    known = {doc["_id"] for doc in await database.jobs.find({"_id": {"$in": [job.id for job in jobs]}}, {"_id": 1}).to_list()}
    keys = [live_key_of(job.queue, job.unique_key) for job in jobs if job.unique_key is not None]
    owners = {doc["live_key"]: str(doc["_id"]) for doc in await database.jobs.find({"live_key": {"$in": keys}}, {"live_key": 1}).to_list()}
    return [
        job.id if job.id in known else None if job.unique_key is None else owners.get(live_key_of(job.queue, job.unique_key))
        for job in jobs
    ]


async def restore(database: Database, jobs: Sequence[Job], receipts: Mapping[str, Sequence[Receipt]]) -> list[bool]:
    """Writes whole jobs as they are; False for an id that is there already."""
    await note_groups(database, jobs)
    answers: list[bool] = []
    for at in range(0, len(jobs), _JOBS_MAX):
        answers += await _restore(database, jobs[at : at + _JOBS_MAX], receipts)
    return answers


async def _restore(database: Database, jobs: Sequence[Job], receipts: Mapping[str, Sequence[Receipt]]) -> list[bool]:
    known = {doc["_id"] for doc in await database.jobs.find({"_id": {"$in": [job.id for job in jobs]}}, {"_id": 1}).to_list()}
    new = [place for place, job in enumerate(jobs) if job.id not in known]
    answers = [place in set(new) for place in range(len(jobs))]
    docs = [_whole_document(jobs[place], receipts.get(jobs[place].id, ())) for place in new]
    refused = [new[place] for place in await write_new(database, docs)] if new else []
    if refused:
        there = {
            doc["_id"] for doc in await database.jobs.find({"_id": {"$in": [jobs[place].id for place in refused]}}, {"_id": 1}).to_list()
        }
        taken = [jobs[place] for place in refused if jobs[place].id not in there]
        if taken:
            raise StoreRejected(
                f"job {taken[0].id}: another live job of queue {taken[0].queue!r} has its unique key {taken[0].unique_key!r}"
            )
        for place in refused:
            answers[place] = False
    if not all(answers):
        await database.confirm()  # what was found there may not have reached the majority yet
    return answers


def _whole_document(job: Job, receipts: Sequence[Receipt]) -> Doc:
    return document_of(job) | ({"receipts": documents_of(receipts)} if receipts else {})
