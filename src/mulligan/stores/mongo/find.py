"""Looking at jobs: by id with their history, and by filter, newest first."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mulligan.core.contract import FIND_LIMIT_MAX, Found, Query
from mulligan.core.errors import UsageError
from mulligan.core.job import LIVE, Job, Status
from mulligan.stores.mongo.database import Database, Doc
from mulligan.stores.mongo.rows import WITHOUT_HISTORY, WITHOUT_RECEIPTS, history_of, shown
from mulligan.stores.mongo.schema import ANY_TEXT, ANY_TIME, DUE, FIFO, LEASE, REST, SCHEDULE, TURN_DUE, rest_of

# So many of the newest jobs are looked at before an index is gone through: most often the wanted ones are among them.
GLANCE = 2_000
_AFTER_ALL = "\U0010ffff"  # sorts behind every id


async def get(database: Database, ids: Sequence[str]) -> list[Job | None]:
    """The jobs with their histories, in the order of the ids; None where there is no such job."""
    now_us = await database.now_us()
    docs = await database.docs(database.seen_jobs, {"_id": {"$in": list(dict.fromkeys(ids))}}, WITHOUT_RECEIPTS)
    jobs = {doc["_id"]: msgspec.structs.replace(job, history=history_of(doc)) for doc, job in zip(docs, shown(docs, now_us), strict=True)}
    return [jobs.get(job_id) for job_id in ids]


async def find(database: Database, query: Query, limit: int, after: str | None) -> Found:
    """One page of the jobs that match, newest first."""
    now_us = await database.now_us()
    wanted: Doc = {
        ("tags" if name == "tag" else name): {"$eq": value}
        for name in ("status", "queue", "task", "lane", "schedule", "tag")
        if (value := getattr(query, name)) is not None
    }
    before = after or _AFTER_ALL
    ids: list[str] = []
    if query.status in ("pending", "done") and query.schedule is None:
        ids = await _glance(database, wanted, before, limit + 1)
    if len(ids) <= limit:
        ids = await _newest(database, query, wanted, before, limit + 1)
    docs = {doc["_id"]: doc for doc in await database.docs(database.seen_jobs, {"_id": {"$in": ids[:limit]}}, WITHOUT_HISTORY)}
    jobs = shown([docs[job_id] for job_id in ids[:limit] if job_id in docs], now_us)
    return Found(jobs=jobs, after=ids[limit - 1] if len(ids) > limit else None)


async def _glance(database: Database, wanted: Doc, before: str, limit: int) -> list[str]:
    """The newest that match, of the newest there are."""
    newest: list[Doc] = [{"$match": {"_id": {"$lt": before}}}, {"$sort": {"_id": -1}}, {"$limit": GLANCE}]
    pipeline = [*newest, {"$match": wanted}, {"$limit": limit}, {"$project": {"_id": 1}}]
    return [doc["_id"] for doc in await database.rows(database.seen_jobs, pipeline, hint="_id_")]


async def _newest(database: Database, query: Query, wanted: Doc, before: str, limit: int) -> list[str]:
    """The newest that match, by the index that holds the fewest others."""
    ids: list[str] = []
    for source, hint in _sources(query):
        page: list[Doc] = [{"$match": {**source, **wanted, "_id": {"$lt": before}}}, {"$sort": {"_id": -1}}, {"$limit": limit}]
        ids += [doc["_id"] for doc in await database.rows(database.seen_jobs, [*page, {"$project": {"_id": 1}}], hint=hint)]
    return sorted(set(ids), reverse=True)[:limit]


def _sources(query: Query) -> list[tuple[Doc, str]]:
    """What to look through, and by which index. A status has an index of its own, or several."""
    if query.schedule is not None:
        return [({}, SCHEDULE)]
    if query.status is None:
        return [({}, "_id_")]
    if query.status == "pending":
        return [({"line": ANY_TEXT}, DUE), ({"fifo_line": ANY_TEXT}, FIFO), ({"turn_due": ANY_TEXT}, TURN_DUE)]
    if query.status == "processing":
        return [({"lease_expires_at_us": ANY_TIME}, LEASE)]
    if query.queue is not None:
        return [({"rest": rest_of(query.queue, query.status)}, REST)]
    return [({"rest": _all_of(query.status)}, REST)]


def _all_of(status: str) -> Doc:
    """The range of `rest` that a status has."""
    return {"$gte": f"{status} ", "$lt": f"{status}!"}  # the character after the space


def check_limit(limit: int) -> None:
    """UsageError unless a page may be so long."""
    if not 1 <= limit <= FIND_LIMIT_MAX:
        raise UsageError(f"limit must be between 1 and {FIND_LIMIT_MAX}, not {limit}")


async def prune(database: Database, status: Status, older_than_us: int, limit: int) -> int:
    """Removes jobs that came to rest long enough ago, oldest first, with their histories; returns how many."""
    if limit <= 0:
        return 0
    until_us = await database.now_us() - older_than_us
    old = {"finished_at_us": {"$lte": until_us}}
    counted = await database.rows(database.jobs, [{"$match": {"rest": _all_of(status)}}, {"$group": {"_id": "$rest"}}], hint=REST)
    oldest: list[tuple[int, str]] = []
    for place in counted:
        found = database.jobs.find({"rest": place["_id"], **old}, {"_id": 1, "finished_at_us": 1}, hint=REST)
        docs = await found.sort([("finished_at_us", 1), ("_id", 1)]).limit(limit).to_list()
        oldest += [(int(doc["finished_at_us"]), doc["_id"]) for doc in docs]
    ids = [job_id for _, job_id in sorted(oldest)[:limit]]
    if not ids:
        return 0
    # Only what is still at rest: an operator may have sent one of them back.
    return int((await database.jobs.delete_many({"_id": {"$in": ids}, "status": status, **old}, hint="_id_")).deleted_count)


def check_prunable(status: Status) -> None:
    """UsageError if jobs of this status are alive."""
    if status in LIVE:
        raise UsageError(f"only done, failed or cancelled jobs can be pruned, not {status} ones")
