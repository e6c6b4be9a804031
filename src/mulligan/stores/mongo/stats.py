"""Counting queues without reading a job that waits or rests: by counting the keys of an index, which is what MongoDB does quickest."""

from __future__ import annotations

from typing import Any

from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import OperationFailure

from mulligan.core.contract import QueueStats, RunningJob, Stats
from mulligan.core.job import LANES, STATUSES
from mulligan.stores.mongo.database import Database, Doc
from mulligan.stores.mongo.groups import HAS_SETTINGS
from mulligan.stores.mongo.schema import ANY_TEXT, ANY_TIME, DUE, FIFO, LEASE, REST, TURN_DUE

_NO_SNAPSHOT = 246  # collections or indexes were made a moment ago: there is no earlier state of them to read
_ATTEMPTS = 5


async def stats(database: Database) -> Stats:
    """Every queue that has jobs or a stored setting, counted.

    All parts are read from one snapshot. Read one after the other from what is there, a job that is claimed and put back meanwhile
    could be missed by each of them, and `drain` would take the queue for empty.
    """
    for attempt in range(_ATTEMPTS):
        async with database.client.start_session(snapshot=True) as session:
            try:
                return await Count(database, session, await database.now_us()).stats()
            except OperationFailure as error:
                if error.code != _NO_SNAPSHOT or attempt == _ATTEMPTS - 1:
                    raise
            await database.confirm()  # what comes after is a later state
    raise AssertionError("the last attempt returns or raises")


class Count:
    """One count of everything, in one snapshot."""

    def __init__(self, database: Database, session: AsyncClientSession, now_us: int) -> None:
        self._database = database
        self._session = session
        self._now_us = now_us
        self._queues: dict[str, dict[str, Any]] = {}

    async def stats(self) -> Stats:
        """Counts, and gives the answer."""
        for doc in await self._database.queues.find(HAS_SETTINGS, {"paused": 1}, session=self._session).to_list():
            self._of(doc["_id"])["paused"] = doc.get("paused") is True
        for field, index in (("line", DUE), ("turn_due", TURN_DUE)):
            for line in await self._places(field, index):
                await self._count_line(field, line, index)
        await self._count_marked()
        await self._count_running()
        for place in await self._places("rest", REST):
            await self._count_rest(place)
        queues = [QueueStats(queue=queue, **figures) for queue, figures in sorted(self._queues.items())]
        return Stats(now_us=self._now_us, queues=queues)

    def _of(self, queue: str) -> dict[str, Any]:
        return self._queues.setdefault(queue, {})

    async def _rows(self, pipeline: list[Doc], hint: str) -> list[Doc]:
        return await self._database.rows(self._database.jobs, pipeline, hint=hint, session=self._session)

    async def _places(self, field: str, hint: str) -> list[str]:
        """The different texts an index begins with; the server skips from one to the next."""
        return [str(doc["_id"]) for doc in await self._rows([{"$match": {field: ANY_TEXT}}, {"$group": {"_id": f"${field}"}}], hint)]

    async def _number(self, query: Doc, hint: str) -> int:
        """How many there are; the index alone can tell."""
        rows = await self._rows([{"$match": query}, {"$count": "jobs"}], hint)
        return int(rows[0]["jobs"]) if rows else 0

    async def _count_line(self, field: str, line: str, hint: str) -> None:
        lane, _, rest = line.partition(" ")
        if lane not in LANES:
            return  # a lane that a damaged document invents has no place among the figures
        figures = self._of(rest.partition(" ")[2])
        for name, part in (("ready", {"$lte": self._now_us}), ("later", {"$gt": self._now_us})):
            query = {field: line, "run_at_us": part}
            jobs = await self._number(query, hint)
            _add(figures, f"{lane}_{name}", jobs)
            if jobs:
                order: list[Doc] = [{"$match": query}, {"$sort": {"run_at_us": 1}}, {"$limit": 1}, {"$project": {"_id": 0, "run_at_us": 1}}]
                _note_first(figures, f"{lane}_{name}", (await self._rows(order, hint))[0]["run_at_us"])

    async def _count_marked(self) -> None:
        ready = {"$lte": ["$run_at_us", self._now_us]}
        group = {
            "_id": {"line": "$fifo_line", "lane": "$lane", "ready": ready},
            "jobs": {"$sum": 1},
            "first_us": {"$min": "$run_at_us"},
        }
        for doc in await self._rows([{"$match": {"fifo_line": ANY_TEXT}}, {"$group": group}], FIFO):
            place = doc["_id"]
            if place.get("lane") in LANES:
                figures = self._of(place["line"].partition(" ")[2])
                column = f"{place['lane']}_{'ready' if place['ready'] else 'later'}"
                _add(figures, column, doc["jobs"])
                _note_first(figures, column, doc["first_us"])

    async def _count_running(self) -> None:
        """Reads the jobs that run: there are never more than all workers together have slots."""
        longest: Doc = {name: f"${name}" for name in ("_id", "task", "failures", "crashes", "lane", "updated_at_us")}
        group = {
            "_id": "$queue",
            "jobs": {"$sum": 1},
            "stuck": {"$sum": {"$cond": [{"$lte": ["$lease_expires_at_us", self._now_us]}, 1, 0]}},
            "retries": {"$sum": {"$cond": [{"$eq": ["$lane", "retry"]}, 1, 0]}},
            "longest": {"$top": {"sortBy": {"updated_at_us": 1, "_id": 1}, "output": longest}},
        }
        for doc in await self._rows([{"$match": {"lease_expires_at_us": ANY_TIME}}, {"$group": group}], LEASE):
            job = doc["longest"]
            current = RunningJob(
                job_id=str(job["_id"]),
                task=str(job.get("task")),
                retry_count=int(job.get("failures", 0)) + int(job.get("crashes", 0)),
                is_retry=job.get("lane") == "retry",
                since_us=int(job.get("updated_at_us", 0)),
            )
            figures = {"processing": doc["jobs"], "stuck": doc["stuck"], "retries_running": doc["retries"], "current_job": current}
            self._of(str(doc["_id"])).update(figures)

    async def _count_rest(self, place: str) -> None:
        status, _, queue = place.partition(" ")
        if status in STATUSES:
            _add(self._of(queue), status, await self._number({"rest": place}, REST))


def _add(figures: dict[str, Any], name: str, jobs: int) -> None:
    if jobs:
        figures[name] = figures.get(name, 0) + jobs


def _note_first(figures: dict[str, Any], column: str, time_us: int | None) -> None:
    """Notes the earliest run_at among the jobs that a column counts."""
    lane, _, name = column.partition("_")
    for limit_name in ("oldest_ready_us", f"{lane}_oldest_us") if name == "ready" else ("next_due_us",):
        _lower(figures, limit_name, time_us)


def _lower(figures: dict[str, Any], name: str, time_us: int | None) -> None:
    if time_us is not None:
        figures[name] = min(int(time_us), figures.get(name, int(time_us)))
