"""The collections and their indexes, and the version that says which they are.

A pending job without a group is in exactly one of two indexes: `due`, by the time it falls due, or `fifo`, by its creation, once a claim
in that order has marked it (claim.py). One with a group is in two others: `turn`, by its group and then its time, and `turn_due`, by its
time alone. What an index is about is one text that stands in the document only while it applies: `line` and `fifo_line` or `turn_line` and
`turn_due` while the job waits, `lease_expires_at_us` while it runs, `rest` when it has come to rest. So each index holds nothing but what
it is for, no two indexes begin with the same field, and there is only one plan the server can choose, whatever its statistics and plan
cache say. The two by which slots are counted (limits.py) begin with plain fields; they are named wherever they are used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from pymongo import IndexModel
from pymongo.errors import DuplicateKeyError, OperationFailure

from mulligan.core.contract import Ask
from mulligan.core.errors import SchemaMismatch
from mulligan.core.job import LANES, Lane
from mulligan.stores.migration import Migration
from mulligan.stores.mongo import wake
from mulligan.stores.mongo.database import Collection, Database

VERSION = 1
COLLECTIONS = ("jobs", "claims", "events", "queues", "schedules", "workers", "meta", "limits", "notes")
DUE, FIFO, TURN, TURN_DUE, LEASE, SLOTS, KEYS, REST, LIVE_KEY, SCHEDULE, LETTER = (
    f"mulligan_{name}" for name in ("due", "fifo", "turn", "turn_due", "lease", "slots", "keys", "rest", "live_key", "schedule", "letter")
)


# "It is set", in the words an index can answer by itself: for $exists the server would read every document.
ANY_TEXT: Mapping[str, Any] = {"$gte": ""}
ANY_TIME: Mapping[str, Any] = {"$gte": 0}


def _while_set(name: str, *fields: str, unique: bool = False, needed: Sequence[str] = ()) -> IndexModel:
    """An index of the documents that have its first field, or those that are needed."""
    wanted = {field: {"$exists": True} for field in needed or fields[:1]}
    return IndexModel([(field, 1) for field in fields], name=name, unique=unique, partialFilterExpression=wanted)


JOB_INDEXES = (
    # The fence stands last in the claim's indexes, so that a claim finds all it needs without reading a document.
    _while_set(DUE, "line", "run_at_us", "_id", "fence"),
    _while_set(FIFO, "fifo_line", "created_at_us", "_id", "lane", "run_at_us", "fence"),
    _while_set(TURN, "turn_line", "group", "run_at_us", "_id", "fence", "created_at_us"),
    _while_set(TURN_DUE, "turn_due", "run_at_us", "_id"),
    _while_set(LEASE, "lease_expires_at_us", "_id"),
    _while_set(SLOTS, "queue", "lane", "lease_expires_at_us", "slots", needed=("slots",)),
    _while_set(KEYS, "concurrency_key", "queue", "lane", "lease_expires_at_us", needed=("concurrency_key", "lease_expires_at_us")),
    _while_set(REST, "rest", "finished_at_us", "_id"),
    _while_set(LIVE_KEY, "live_key", unique=True),
    _while_set(SCHEDULE, "schedule", "_id"),
    _while_set(LETTER, "letter_due", "_id"),
)
CLAIM_INDEXES = (IndexModel([("at_us", 1)], name="mulligan_claims_age"),)
LIMIT_INDEXES = (_while_set("mulligan_limits_age", "at_us"),)


STEPS = (
    Migration(
        number=1,
        name="collections and indexes of jobs, claims, limits, events, notes, queues, schedules, workers and hints",
        statements=(
            *(f"db.createCollection('mulligan_{name}')" for name in COLLECTIONS),
            f"db.createCollection('{wake.HINTS}', {{capped: true, size: {wake.BYTES_MAX}}})",
            *(f"db.mulligan_jobs.createIndex({dict(index.document['key'])})  // {index.document['name']}" for index in JOB_INDEXES),
            *(f"db.mulligan_claims.createIndex({dict(index.document['key'])})  // {index.document['name']}" for index in CLAIM_INDEXES),
            *(f"db.mulligan_limits.createIndex({dict(index.document['key'])})  // {index.document['name']}" for index in LIMIT_INDEXES),
        ),
    ),
)


def line_of(queue: str, lane: str, priority: int) -> str:
    """The line a pending job stands in. The queue comes last, because it is the one part that is free text."""
    return f"{lane} {priority} {queue}"


def waiting_place(queue: str, lane: str, priority: int, group: str | None) -> dict[str, str]:
    """The fields by which a pending job is found: those of its line, or, if it has a group, those of its turn."""
    line = line_of(queue, lane, priority)
    return {"line": line} if group is None else {"turn_line": line, "turn_due": line}


def lanes_of(ask: Ask) -> Sequence[Lane]:
    """The lanes an ask is for."""
    return LANES if ask.lane is None else (ask.lane,)


def fifo_line_of(queue: str, priority: int) -> str:
    """The line of a marked job: both lanes stand in one."""
    return f"{priority} {queue}"


def rest_of(queue: str, status: str) -> str:
    """Where a finished job is counted."""
    return f"{status} {queue}"


def live_key_of(queue: str, unique_key: str) -> str:
    """What at most one live job may have."""
    return f"{queue} {unique_key}"  # a queue's name has no space


async def prepare(database: Database) -> None:
    """Makes what is missing; SchemaMismatch if a newer version of mulligan was here. Any number of processes may do it at once."""
    version = await stored_version(database)
    if version is not None and version > VERSION:
        raise SchemaMismatch(
            f"the MongoDB database {database.name!r} has schema version {version}, and this version of mulligan speaks {VERSION}; "
            "use the newer mulligan, or another database"
        )
    if version == VERSION:
        return
    names = await database.plain.list_collection_names()
    for name in COLLECTIONS:
        if f"mulligan_{name}" not in names:
            await _create(database, f"mulligan_{name}")
    await wake.make(database)
    await database.jobs.create_indexes(list(JOB_INDEXES))
    await database.claims.with_options(write_concern=database.jobs.write_concern).create_indexes(list(CLAIM_INDEXES))
    await database.limits.create_indexes(list(LIMIT_INDEXES))
    # Last: whoever reads this version may rely on everything above.
    with suppress(DuplicateKeyError):  # another process wrote it at the same moment
        await database.meta.update_one({"_id": "schema"}, {"$set": {"version": VERSION}}, upsert=True)


async def _create(database: Database, name: str) -> None:
    try:
        await database.plain.create_collection(name, check_exists=False)
    except OperationFailure as problem:
        if problem.code != 48:  # it exists: another process was quicker
            raise


async def stored_version(database: Database) -> int | None:
    """The version of the schema that is there; None if there is none."""
    found = await database.meta.find_one({"_id": "schema"})
    return None if found is None else int(found.get("version", 0))


async def missing_indexes(database: Database) -> list[str]:
    """The names of indexes that somebody removed."""

    async def lacking(collection: Collection, wanted: tuple[IndexModel, ...]) -> list[str]:
        there: Mapping[str, Any] = await collection.index_information()
        return [str(index.document["name"]) for index in wanted if index.document["name"] not in there]

    return [
        *await lacking(database.jobs, JOB_INDEXES),
        *await lacking(database.claims, CLAIM_INDEXES),
        *await lacking(database.limits, LIMIT_INDEXES),
    ]
