"""What a claim finds before it takes anything: one aggregation, so one round trip and one reading of the server's clock.

It begins at the one document of mulligan_meta, which carries the time, and adds the paused queues, the claim itself if it is known, and
the candidates of each ask. Each part can go by one index only (schema.py), so no statistics and no plan cache can change its cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import merge
from itertools import islice
from typing import Any, NamedTuple

from mulligan.core.contract import Ask
from mulligan.core.errors import SchemaMismatch
from mulligan.core.job import LANES, PRIORITIES, Lane
from mulligan.stores.mongo.database import Database, Doc
from mulligan.stores.mongo.schema import fifo_line_of, line_of

READY_MAX = 5_000  # so many due jobs of a lane are marked at a time


class Candidate(NamedTuple):
    """A job that may be taken, under the fence it has."""

    at_us: int  # its place in its line: run_at or created_at
    id: str
    fence: int


class Seen(NamedTuple):
    """What a claim finds."""

    now_us: int
    known: Doc | None  # the document of the claim, if its id took jobs before
    paused: set[str]
    lines: list[list[Candidate]]  # the candidates of each ask
    marked: set[tuple[str, int]]  # queues and priorities asked for in the order of run_at that hold marked jobs


def lanes_of(ask: Ask) -> Sequence[Lane]:
    """The lanes an ask is for."""
    return LANES if ask.lane is None else (ask.lane,)


async def look(database: Database, claim_id: str, asks: Sequence[Ask], limit: int, *, with_marked: bool = False) -> Seen:
    """The candidates of each ask, at most `limit`, and what else a claim must know."""
    now = database.now_term()
    pipeline: list[Doc] = [
        {"$match": {"_id": "schema"}},
        {"$project": {"now_us": now if isinstance(now, dict) else {"$literal": now}}},
        _union("mulligan_queues", {"_id": {"$in": sorted({ask.queue for ask in asks})}, "paused": True}, {"$project": {"paused": "$_id"}}),
        _union("mulligan_claims", {"_id": claim_id}, {"$project": {"known": "$$ROOT"}}),
    ]
    for place, ask in enumerate(asks):
        pipeline += _of_ask(place, ask, now, limit, with_marked=with_marked)
    # Queues and priorities asked for in the order of run_at; marked jobs there are a rare sight, so one probe is for all of them.
    places = {fifo_line_of(ask.queue, ask.priority): (ask.queue, ask.priority) for ask in asks if ask.order == "run_at"}
    if places:
        pipeline.append(_marked(sorted(places), READY_MAX if with_marked else 1))
    found = await database.rows(database.meta, pipeline)
    if not found or "now_us" not in found[0]:
        raise SchemaMismatch(
            f"the MongoDB database {database.name!r} has lost the collection mulligan_meta; open the store again to make it"
        )
    parts: list[list[list[Candidate]]] = [[] for _ in asks]
    marked: set[tuple[str, int]] = set()
    for doc in found:
        if "ask" in doc:
            parts[doc["ask"]].append([Candidate(*one) for one in zip(doc["at"], doc["ids"], doc["fences"], strict=True)])
        elif "marked" in doc:
            marked.add(places[doc["marked"]])
    if with_marked:  # a queue that is asked for in both orders at once keeps its marks
        marked -= {(ask.queue, ask.priority) for ask in asks if ask.order == "created_at"}
    return Seen(
        now_us=int(found[0]["now_us"]),
        known=next((doc["known"] for doc in found if "known" in doc), None),
        paused={doc["paused"] for doc in found if "paused" in doc},
        lines=[_merged(part, limit) for part in parts],
        marked=marked,
    )


def _merged(parts: list[list[Candidate]], limit: int) -> list[Candidate]:
    return parts[0] if len(parts) == 1 else list(islice(merge(*map(sorted, parts)), limit))


def _of_ask(place: int, ask: Ask, now: Any, limit: int, *, with_marked: bool) -> Iterable[Doc]:
    due: Doc = {"$expr": {"$lte": ["$run_at_us", now]}}
    fifo = {"fifo_line": fifo_line_of(ask.queue, ask.priority), **due}
    if ask.order == "created_at":
        yield _line(place, {**fifo, **({} if ask.lane is None else {"lane": ask.lane})}, "created_at_us", limit)
        return
    for lane in lanes_of(ask):
        yield _line(place, {"line": line_of(ask.queue, lane, ask.priority), **due}, "run_at_us", limit)
        if with_marked:
            yield _line(place, {**fifo, "lane": lane}, "run_at_us", limit)


def _line(place: int, query: Doc, order: str, limit: int) -> Doc:
    lists = {"ids": {"$push": "$_id"}, "at": {"$push": f"${order}"}, "fences": {"$push": "$fence"}}
    return _union(
        "mulligan_jobs",
        query,
        {"$sort": {order: 1, "_id": 1}},
        {"$limit": limit},
        {"$project": {"_id": 1, order: 1, "fence": 1}},
        {"$group": {"_id": {"$literal": place}, "ask": {"$first": {"$literal": place}}, **lists}},
    )


def _marked(fifo_lines: list[str], limit: int) -> Doc:
    """Which of these lines hold marked jobs; of all of them, at most so many jobs are looked at."""
    stages = ({"$limit": limit}, {"$group": {"_id": "$fifo_line"}}, {"$project": {"marked": "$_id"}})
    return _union("mulligan_jobs", {"fifo_line": {"$in": fifo_lines}}, *stages)


def _union(collection: str, query: Doc, *stages: Doc) -> Doc:
    return {"$unionWith": {"coll": collection, "pipeline": [{"$match": query}, *stages]}}


async def next_due_us(database: Database, queues: Iterable[str], now_us: int) -> int | None:
    """When the next pending job of these queues falls due, of those that are not due yet.

    One probe for each lane and priority of each queue, because the index has them before the time. Marked jobs were due when they were
    marked: only after a clock was set back is one of them in the future, and there are few.
    """
    later = {"run_at_us": {"$gt": now_us}}
    pipeline: list[Doc] = [{"$match": {"_id": "schema"}}, {"$project": {"_id": 1}}]
    for queue in sorted(queues):
        for priority in PRIORITIES:
            for lane in LANES:
                query = {"line": line_of(queue, lane, priority), **later}
                pipeline.append(_union("mulligan_jobs", query, {"$sort": {"run_at_us": 1}}, {"$limit": 1}, {"$project": {"run_at_us": 1}}))
            query = {"fifo_line": fifo_line_of(queue, priority), **later}
            pipeline.append(_union("mulligan_jobs", query, {"$group": {"_id": None, "run_at_us": {"$min": "$run_at_us"}}}))
    pipeline.append({"$match": {"run_at_us": {"$type": "number"}}})
    times = [int(doc["run_at_us"]) for doc in await database.rows(database.meta, pipeline)]
    return min(times, default=None)


async def mark(database: Database, asks: Sequence[Ask]) -> None:
    """Marks due jobs for claims in the order of creation; see claim.py."""
    now = database.now_term()
    lines = {
        line_of(ask.queue, lane, ask.priority): fifo_line_of(ask.queue, ask.priority)
        for ask in asks
        if ask.order == "created_at"
        for lane in lanes_of(ask)
    }
    for line, fifo_line in lines.items():
        query: Doc = {"line": line, "$expr": {"$lte": ["$run_at_us", now]}}
        found = await database.rows(
            database.jobs,
            [{"$match": query}, {"$sort": {"run_at_us": 1, "_id": 1}}, {"$limit": READY_MAX}, {"$project": {"_id": 1}}],
        )
        if found:
            chosen = {"_id": {"$in": [doc["_id"] for doc in found]}, "line": line}
            await database.marks.update_many(chosen, {"$set": {"fifo_line": fifo_line}, "$unset": {"line": 1}}, hint="_id_")


async def unmark(database: Database, places: Iterable[tuple[str, int]]) -> None:
    """Takes marks off again, a bounded number of them."""
    for queue, priority in sorted(places):
        fifo_line = fifo_line_of(queue, priority)
        found = await database.marks.find({"fifo_line": fifo_line}, {"_id": 1}).limit(READY_MAX).to_list()
        line = {"$concat": ["$lane", f" {priority} ", {"$literal": queue}]}
        await database.marks.update_many(
            {"_id": {"$in": [doc["_id"] for doc in found]}, "fifo_line": fifo_line},
            [{"$set": {"line": line}}, {"$unset": "fifo_line"}],
            hint="_id_",
        )
