"""What a claim finds before it takes anything: one aggregation, so one round trip and one reading of the server's clock.

It begins at the one document of mulligan_meta, which carries the time, and adds the settings of the queues, the claim itself if it is
known, and the candidates of each ask. Each part can go by one index only (schema.py), so no statistics and no plan cache can change its
cost. A transaction knows no $unionWith, so the look of a careful claim (careful.py) has the same parts as fields of the one document.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import merge
from itertools import islice
from typing import Any, NamedTuple

from mulligan.core.contract import Ask
from mulligan.core.errors import SchemaMismatch
from mulligan.core.job import LANES, PRIORITIES, Lane
from mulligan.core.ring import SPARE_GROUPS
from mulligan.stores.mongo.database import Database, Doc, Session
from mulligan.stores.mongo.marks import READY_MAX
from mulligan.stores.mongo.schema import fifo_line_of, lanes_of, line_of
from mulligan.stores.mongo.turns import KEY_FIELDS, Key, key_of


class Candidate(NamedTuple):
    """A job that may be taken, under the fence it has."""

    at_us: int  # its place in its line: run_at or created_at
    id: str
    fence: int


class Source(NamedTuple):
    """Where candidates of an ask come from: a query that one index answers in order."""

    ask: int
    lane: Lane | None  # None: both, mixed
    query: Doc
    order: str


class Seen(NamedTuple):
    """What a claim finds."""

    now_us: int
    known: Doc | None  # the document of the claim, if its id took jobs before
    paused: set[str]
    grouped: set[str]  # queues that have had jobs with a group
    sources: list[Source]
    found: list[list[Candidate]]  # the candidates of each source
    marked: set[tuple[str, int]]  # queues and priorities asked for in the order of run_at that hold marked jobs
    turns: dict[str, list[Key]]  # lines in which jobs with a group are due, of those that were asked about, and the first of these jobs

    def of_ask(self, place: int, limit: int) -> list[Candidate]:
        """The candidates of an ask in their order."""
        parts = [found for source, found in zip(self.sources, self.found, strict=True) if source.ask == place]
        return parts[0] if len(parts) == 1 else list(islice(merge(*map(sorted, parts)), limit))

    def of_lane(self, place: int, lane: Lane, limit: int) -> list[Candidate]:
        """Those of one lane, where the look told lanes apart."""
        parts = [found for source, found in zip(self.sources, self.found, strict=True) if (source.ask, source.lane) == (place, lane)]
        return parts[0] if len(parts) == 1 else list(islice(merge(*map(sorted, parts)), limit))


async def look(database: Database, claim_id: str, asks: Sequence[Ask], limit: int, *, with_marked: bool = False) -> Seen:
    """The candidates of each ask, at most `limit`, and what else a claim must know."""
    now = database.now_term()
    sources = list(_sources(asks, now, with_marked=with_marked, by_lane=False))
    pipeline: list[Doc] = [
        *_beginning(now),
        _union("mulligan_queues", *_settings(asks)),
    ]
    for number, source in enumerate(sources):
        lists = {"ids": {"$push": "$_id"}, "at": {"$push": f"${source.order}"}, "fences": {"$push": "$fence"}}
        group = {"$group": {"_id": {"$literal": number}, "source": {"$first": {"$literal": number}}, **lists}}
        pipeline.append(_union("mulligan_jobs", *_candidates(source, limit), group))
    places = _places(asks)
    if places:
        pipeline.append(_union("mulligan_jobs", *_marked(places, with_marked=with_marked)))
    # After the jobs: the call that this one repeats notes what it takes before it takes it, so one of the two looks finds it.
    pipeline.append(_union("mulligan_claims", {"$match": {"_id": claim_id}}, {"$project": {"known": "$$ROOT"}}))
    docs = await database.rows(database.meta, pipeline)
    _check_there(database, docs)
    found: list[list[Candidate]] = [[] for _ in sources]
    for doc in docs:
        if "source" in doc:
            found[doc["source"]] = [Candidate(*one) for one in zip(doc["at"], doc["ids"], doc["fences"], strict=True)]
    return Seen(
        now_us=int(docs[0]["now_us"]),
        known=next((doc["known"] for doc in docs if "known" in doc), None),
        paused={doc["_id"] for doc in docs if doc.get("paused") is True},
        grouped={doc["_id"] for doc in docs if doc.get("grouped") is True},
        sources=sources,
        found=found,
        marked=_to_unmark(asks, {places[doc["marked"]] for doc in docs if "marked" in doc}, with_marked=with_marked),
        turns={},
    )


async def look_inside(
    database: Database,
    session: Session,
    claim_id: str,
    asks: Sequence[Ask],
    limit: int,
    turn_lines: Iterable[str],
    *,
    with_marked: bool = False,
) -> Seen:
    """The same inside a transaction, with each lane by itself, and what is due in these lines of jobs with a group."""
    now = database.now_term()
    sources = list(_sources(asks, now, with_marked=with_marked, by_lane=True))
    places = _places(asks)
    lines = sorted(turn_lines)
    pipeline = [
        *_beginning(now),
        _joined("mulligan_queues", "queues", *_settings(asks)),
        _joined("mulligan_claims", "known", {"$match": {"_id": claim_id}}),
        *(_joined("mulligan_jobs", f"source{number}", *_candidates(source, limit)) for number, source in enumerate(sources)),
        *(_joined("mulligan_jobs", f"turn{number}", *_first_due(line, now, limit + SPARE_GROUPS + 1)) for number, line in enumerate(lines)),
    ]
    if places:
        pipeline.append(_joined("mulligan_jobs", "marked", *_marked(places, with_marked=with_marked)))
    docs = await database.rows(database.meta, pipeline, session=session)
    _check_there(database, docs)
    [doc] = docs
    return Seen(
        now_us=int(doc["now_us"]),
        known=next(iter(doc["known"]), None),
        paused={queue["_id"] for queue in doc["queues"] if queue.get("paused") is True},
        grouped={queue["_id"] for queue in doc["queues"] if queue.get("grouped") is True},
        sources=sources,
        found=[
            [Candidate(job.get(source.order, 0), job["_id"], job.get("fence", 0)) for job in doc[f"source{number}"]]
            for number, source in enumerate(sources)
        ],
        marked=_to_unmark(asks, {places[mark["marked"]] for mark in doc.get("marked", ())}, with_marked=with_marked),
        turns={line: [key_of(key) for key in doc[f"turn{number}"]] for number, line in enumerate(lines) if doc[f"turn{number}"]},
    )


def _beginning(now: Any) -> list[Doc]:
    return [{"$match": {"_id": "schema"}}, {"$project": {"now_us": now if isinstance(now, dict) else {"$literal": now}}}]


def _check_there(database: Database, docs: list[Doc]) -> None:
    if not docs or "now_us" not in docs[0]:
        raise SchemaMismatch(
            f"the MongoDB database {database.name!r} has lost the collection mulligan_meta; open the store again to make it"
        )


def _settings(asks: Sequence[Ask]) -> list[Doc]:
    """Which of the queues are paused, and which have had jobs with a group."""
    queues = sorted({ask.queue for ask in asks})
    return [
        {"$match": {"_id": {"$in": queues}, "$or": [{"paused": True}, {"grouped": True}]}},
        {"$project": {"paused": 1, "grouped": 1}},
    ]


def _sources(asks: Sequence[Ask], now: Any, *, with_marked: bool, by_lane: bool) -> Iterable[Source]:
    due: Doc = {"$expr": {"$lte": ["$run_at_us", now]}}
    for place, ask in enumerate(asks):
        fifo = {"fifo_line": fifo_line_of(ask.queue, ask.priority), **due}
        if ask.order == "created_at" and ask.lane is None and not by_lane:
            yield Source(place, None, fifo, "created_at_us")
            continue
        for lane in lanes_of(ask):
            if ask.order == "created_at":
                yield Source(place, lane, {**fifo, "lane": lane}, "created_at_us")
                continue
            yield Source(place, lane, {"line": line_of(ask.queue, lane, ask.priority), **due}, "run_at_us")
            if with_marked:
                yield Source(place, lane, {**fifo, "lane": lane}, "run_at_us")


def _candidates(source: Source, limit: int) -> list[Doc]:
    order = source.order
    return [
        {"$match": source.query},
        {"$sort": {order: 1, "_id": 1}},
        {"$limit": limit},
        {"$project": {"_id": 1, order: 1, "fence": 1}},
    ]


def _first_due(turn_line: str, now: Any, limit: int) -> list[Doc]:
    query = {"turn_due": turn_line, "$expr": {"$lte": ["$run_at_us", now]}}
    return [{"$match": query}, {"$sort": {"run_at_us": 1, "_id": 1}}, {"$limit": limit}, {"$project": KEY_FIELDS}]


def _places(asks: Sequence[Ask]) -> dict[str, tuple[str, int]]:
    """Queues and priorities asked for in the order of run_at; marked jobs there are a rare sight, so one probe is for all of them."""
    return {fifo_line_of(ask.queue, ask.priority): (ask.queue, ask.priority) for ask in asks if ask.order == "run_at"}


def _marked(places: Iterable[str], *, with_marked: bool) -> list[Doc]:
    """Which of these lines hold marked jobs; of all of them, a bounded number of jobs is looked at."""
    return [
        {"$match": {"fifo_line": {"$in": sorted(places)}}},
        {"$limit": READY_MAX if with_marked else 1},
        {"$group": {"_id": "$fifo_line"}},
        {"$project": {"marked": "$_id"}},
    ]


def _to_unmark(asks: Sequence[Ask], marked: set[tuple[str, int]], *, with_marked: bool) -> set[tuple[str, int]]:
    """A queue that is asked for in both orders at once keeps its marks."""
    return marked - {(ask.queue, ask.priority) for ask in asks if ask.order == "created_at"} if with_marked else marked


def _union(collection: str, *stages: Doc) -> Doc:
    return {"$unionWith": {"coll": collection, "pipeline": list(stages)}}


def _joined(collection: str, name: str, *stages: Doc) -> Doc:
    return {"$lookup": {"from": collection, "pipeline": list(stages), "as": name}}


async def next_due_us(database: Database, queues: Iterable[str], now_us: int) -> int | None:
    """When the next pending job of these queues falls due, of those that are not due yet.

    The server goes to the first key of each lane and priority of a queue and merges what it finds; once more where there are groups.
    Marked jobs were due when they were marked: only after a clock was set back is one of them in the future, and there are few.
    """
    later = {"run_at_us": {"$gt": now_us}}
    pipeline: list[Doc] = [{"$match": {"_id": "schema"}}, {"$project": {"_id": 1}}]
    for queue in sorted(queues):
        fields = ("line", "turn_due") if queue in database.grouped else ("line",)
        lines = [line_of(queue, lane, priority) for lane in LANES for priority in PRIORITIES]
        first: list[Doc] = [{"$sort": {"run_at_us": 1}}, {"$limit": 1}, {"$project": {"_id": 0, "run_at_us": 1}}]
        pipeline += [_union("mulligan_jobs", {"$match": {field: {"$in": lines}, **later}}, *first) for field in fields]
        marked = {"fifo_line": {"$in": [fifo_line_of(queue, priority) for priority in PRIORITIES]}, **later}
        earliest = {"$group": {"_id": None, "run_at_us": {"$min": "$run_at_us"}}}
        pipeline.append(_union("mulligan_jobs", {"$match": marked}, earliest))
    pipeline.append({"$match": {"run_at_us": {"$type": "number"}}})
    times = [int(doc["run_at_us"]) for doc in await database.rows(database.meta, pipeline)]
    return min(times, default=None)
