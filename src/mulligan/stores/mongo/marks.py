"""Marks on due jobs, for claims in the order of creation; see claim.py. Jobs with a group are never marked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mulligan.core.contract import Ask
from mulligan.stores.mongo.database import Database, Doc
from mulligan.stores.mongo.schema import fifo_line_of, lanes_of, line_of

READY_MAX = 5_000  # so many due jobs of a lane are marked at a time


async def mark(database: Database, asks: Sequence[Ask]) -> None:
    """Marks due jobs for the asks in the order of creation."""
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
