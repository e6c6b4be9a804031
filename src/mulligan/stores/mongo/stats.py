"""Counting queues without reading a job that waits or rests: by counting the keys of an index, which is what MongoDB does quickest."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from mulligan.core.contract import QueueStats, RunningJob, Stats
from mulligan.core.job import LANES, STATUSES
from mulligan.stores.mongo.database import Database, Doc
from mulligan.stores.mongo.schema import ANY_TEXT, ANY_TIME, DUE, FIFO, LEASE, REST

T = TypeVar("T")
_AT_ONCE = 4  # so that a look at the figures does not take all connections


async def stats(database: Database) -> Stats:
    """Every queue that has jobs or a stored setting, counted."""
    now_us = await database.now_us()
    queues: dict[str, dict[str, Any]] = {}
    for doc in await database.queues.find({}, {"paused": 1}).to_list():
        queues[doc["_id"]] = {"paused": doc.get("paused") is True}
    # The parts are read one after the other, while jobs move from one to the next. Those that run are counted before and after those that
    # wait, so that one that goes back to waiting in between is not missed by both; `drain` would take the queue for empty.
    before: dict[str, dict[str, Any]] = {}
    await _count_running(database, now_us, before)
    lines = await _places(database, "line", DUE)
    await _some_at_once([_count_line(database, line, now_us, queues) for line in lines])
    await _count_marked(database, now_us, queues)
    await _count_running(database, now_us, queues)
    for queue, figures in before.items():
        if figures.get("processing", 0) > queues.setdefault(queue, {}).get("processing", 0):
            queues[queue].update(figures)
    await _some_at_once([_count_rest(database, place, queues) for place in await _places(database, "rest", REST)])
    return Stats(now_us=now_us, queues=[QueueStats(queue=queue, **queues[queue]) for queue in sorted(queues)])


async def _places(database: Database, field: str, hint: str) -> list[str]:
    """The different texts an index begins with; the server skips from one to the next."""
    found = await database.rows(database.jobs, [{"$match": {field: ANY_TEXT}}, {"$group": {"_id": f"${field}"}}], hint=hint)
    return [str(doc["_id"]) for doc in found]


async def _some_at_once(work: Sequence[Coroutine[Any, Any, None]]) -> None:
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(part: Coroutine[Any, Any, None]) -> None:
        async with gate:
            await part

    await asyncio.gather(*(one(part) for part in work))


async def _count_line(database: Database, line: str, now_us: int, queues: dict[str, dict[str, Any]]) -> None:
    lane, _, rest = line.partition(" ")
    queue = rest.partition(" ")[2]
    if lane not in LANES:
        return  # a lane that a damaged document invents has no place among the figures
    figures = queues.setdefault(queue, {})
    for name, part, limit_name in (("ready", {"$lte": now_us}, "oldest_ready_us"), ("later", {"$gt": now_us}, "next_due_us")):
        query = {"line": line, "run_at_us": part}
        jobs = await database.count(query, DUE)
        _add(figures, f"{lane}_{name}", jobs)
        if jobs:
            first = await database.jobs.find_one(query, {"_id": 0, "run_at_us": 1}, sort=[("run_at_us", 1)], hint=DUE)
            _lower(figures, limit_name, None if first is None else int(first["run_at_us"]))


async def _count_marked(database: Database, now_us: int, queues: dict[str, dict[str, Any]]) -> None:
    ready = {"$lte": ["$run_at_us", now_us]}
    group = {
        "_id": {"line": "$fifo_line", "lane": "$lane", "ready": ready},
        "jobs": {"$sum": 1},
        "first_us": {"$min": "$run_at_us"},
    }
    for doc in await database.rows(database.jobs, [{"$match": {"fifo_line": ANY_TEXT}}, {"$group": group}], hint=FIFO):
        place = doc["_id"]
        if place.get("lane") in LANES:
            figures = queues.setdefault(place["line"].partition(" ")[2], {})
            _add(figures, f"{place['lane']}_{'ready' if place['ready'] else 'later'}", doc["jobs"])
            _lower(figures, "oldest_ready_us" if place["ready"] else "next_due_us", doc["first_us"])


async def _count_running(database: Database, now_us: int, queues: dict[str, dict[str, Any]]) -> None:
    """Reads the jobs that run: there are never more than all workers together have slots."""
    longest: Doc = {name: f"${name}" for name in ("_id", "task", "failures", "crashes", "lane", "updated_at_us")}
    group = {
        "_id": "$queue",
        "jobs": {"$sum": 1},
        "stuck": {"$sum": {"$cond": [{"$lte": ["$lease_expires_at_us", now_us]}, 1, 0]}},
        "longest": {"$top": {"sortBy": {"updated_at_us": 1, "_id": 1}, "output": longest}},
    }
    for doc in await database.rows(database.jobs, [{"$match": {"lease_expires_at_us": ANY_TIME}}, {"$group": group}], hint=LEASE):
        job = doc["longest"]
        current = RunningJob(
            job_id=str(job["_id"]),
            task=str(job.get("task")),
            retry_count=int(job.get("failures", 0)) + int(job.get("crashes", 0)),
            is_retry=job.get("lane") == "retry",
            since_us=int(job.get("updated_at_us", 0)),
        )
        queues.setdefault(str(doc["_id"]), {}).update(processing=doc["jobs"], stuck=doc["stuck"], current_job=current)


async def _count_rest(database: Database, place: str, queues: dict[str, dict[str, Any]]) -> None:
    status, _, queue = place.partition(" ")
    if status in STATUSES:
        _add(queues.setdefault(queue, {}), status, await database.count({"rest": place}, REST))


def _add(figures: dict[str, Any], name: str, jobs: int) -> None:
    if jobs:
        figures[name] = figures.get(name, 0) + jobs


def _lower(figures: dict[str, Any], name: str, time_us: int | None) -> None:
    if time_us is not None:
        figures[name] = min(int(time_us), figures.get(name, int(time_us)))
