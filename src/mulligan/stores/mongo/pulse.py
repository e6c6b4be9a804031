"""How full queues are, at a cost that does not grow with them."""

from __future__ import annotations

from collections.abc import Sequence

from mulligan.core.contract import DEPTH_MAX, Pulse
from mulligan.core.job import LANES, PRIORITIES
from mulligan.stores.mongo.database import Database, Doc
from mulligan.stores.mongo.marks import READY_MAX
from mulligan.stores.mongo.schema import fifo_line_of, line_of


async def pulse(database: Database, queues: Sequence[str]) -> list[Pulse]:
    """Due jobs of each queue, counted up to a bound, and since when the oldest is due."""
    if not queues:
        return []
    names = list(dict.fromkeys(queues))
    due: Doc = {"$expr": {"$lte": ["$run_at_us", database.now_term()]}}
    pipeline: list[Doc] = [{"$match": {"_id": "schema"}}, {"$project": {"_id": 1}}]
    for number, queue in enumerate(names):
        counted = {"$group": {"_id": {"$literal": number}, "jobs": {"$sum": 1}, "oldest_us": {"$min": "$run_at_us"}}}
        for priority in PRIORITIES:
            for field, line in ((field, line_of(queue, lane, priority)) for lane in LANES for field in ("line", "turn_due")):
                first: list[Doc] = [{"$sort": {"run_at_us": 1}}, {"$limit": DEPTH_MAX}, {"$project": {"_id": 0, "run_at_us": 1}}]
                pipeline.append({"$unionWith": {"coll": "mulligan_jobs", "pipeline": [{"$match": {field: line, **due}}, *first, counted]}})
            # Marked jobs stand by their creation; of very many, the oldest is sought among the first.
            marked: list[Doc] = [{"$match": {"fifo_line": fifo_line_of(queue, priority), **due}}, {"$limit": READY_MAX}, counted]
            pipeline.append({"$unionWith": {"coll": "mulligan_jobs", "pipeline": marked}})
    depths = dict.fromkeys(names, 0)
    oldest: dict[str, int] = {}
    for doc in await database.rows(database.meta, [*pipeline, {"$match": {"jobs": {"$gt": 0}}}]):
        queue, since_us = names[doc["_id"]], int(doc["oldest_us"])
        depths[queue] += int(doc["jobs"])
        oldest[queue] = min(since_us, oldest.get(queue, since_us))
    return [Pulse(queue=queue, depth=min(DEPTH_MAX, depths[queue]), oldest_us=oldest.get(queue)) for queue in queues]
