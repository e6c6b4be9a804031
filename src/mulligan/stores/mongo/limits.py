"""What limits are kept by: the count of slots, the levels of buckets, and the documents that make those who share them take turns.

mulligan_limits has a document for each queue that is claimed from carefully, and one for each bucket, with its level. A claim, and a
renewal of a lease that has ended, first raises a number in the documents of its queues. Two that do so at the same time are in conflict
(transaction.py), so what one has counted cannot change before it is done. A bucket is read, and written if a job was taken from it,
which puts those who share it in conflict just so.

A lease ends by itself, without a write that a transaction could meet: a renewal may have found it alive while a claim finds it ended.
So a claim that counts past ended leases marks their jobs (`given_away`), and a marked job is renewed only by a transaction
(renewal.py) that finds the slots free.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pymongo import UpdateOne

from mulligan.core.job import Lane
from mulligan.core.limits import BUCKET_MEMORY_US, Level, Scope
from mulligan.stores.mongo.database import Database, Doc, Session
from mulligan.stores.mongo.schema import ANY_TEXT, ANY_TIME, KEYS, SLOTS

_QUEUE, _BUCKET = "queue ", "bucket "
_FORGET_EVERY = 1_000  # claims that took tokens; old buckets are removed now and then


class Held(NamedTuple):
    """Jobs that are processing, counted by where they belong."""

    queue: str
    lane: Lane
    key: str | None  # None: all that were claimed under slots
    live: int
    ended: int

    def is_in(self, scope: Scope) -> bool:
        """Whether they count for a number of slots."""
        return (self.queue, self.key) == (scope.queue, scope.key) and scope.lane in (None, self.lane)


async def take_turns(database: Database, session: Session, queues: Iterable[str]) -> None:
    """From here to the end of the transaction no other can count the slots of these queues."""
    turns = [UpdateOne({"_id": _QUEUE + queue}, {"$inc": {"turns": 1}}, upsert=True) for queue in sorted(set(queues))]
    await database.limits.bulk_write(turns, session=session)


async def count(database: Database, session: Session, scopes: Iterable[Scope], now_us: int) -> dict[Scope, int]:
    """The processing jobs of each scope under a lease that has not ended. Marks the others: their slots may now be given away."""
    wanted = set(scopes)
    found: list[Held] = []
    queues = sorted({scope.queue for scope in wanted if scope.key is None})
    if queues:
        query = {"queue": {"$in": queues}, "slots": ANY_TEXT}
        found += await _held(database, session, query, {"queue": "$queue", "lane": "$lane"}, SLOTS, now_us)
    keys = sorted({scope.key for scope in wanted if scope.key is not None})
    if keys:
        queues_of_keys = sorted({scope.queue for scope in wanted if scope.key is not None})
        query = {"concurrency_key": {"$in": keys}, "queue": {"$in": queues_of_keys}, "lease_expires_at_us": ANY_TIME}
        names = {"queue": "$queue", "lane": "$lane", "key": "$concurrency_key"}
        found += await _held(database, session, query, names, KEYS, now_us)
    if any(held.ended for held in found):
        await _mark_given_away(database, session, {scope.queue for scope in wanted}, now_us)
    return {scope: sum(held.live for held in found if held.is_in(scope)) for scope in wanted}


async def _held(database: Database, session: Session, query: Doc, names: Doc, hint: str, now_us: int) -> list[Held]:
    is_live = {"$gt": ["$lease_expires_at_us", now_us]}
    group = {"_id": names, "live": {"$sum": {"$cond": [is_live, 1, 0]}}, "jobs": {"$sum": 1}}
    docs = await database.rows(database.jobs, [{"$match": query}, {"$group": group}], hint=hint, session=session)
    return [
        Held(doc["_id"]["queue"], doc["_id"]["lane"], doc["_id"].get("key"), int(doc["live"]), int(doc["jobs"]) - int(doc["live"]))
        for doc in docs
    ]


async def _mark_given_away(database: Database, session: Session, queues: Iterable[str], now_us: int) -> None:
    ended = {
        "queue": {"$in": sorted(queues)},
        "slots": ANY_TEXT,
        "lease_expires_at_us": {"$lte": now_us},
        "given_away": {"$exists": False},
    }
    await database.jobs.update_many(ended, {"$set": {"given_away": True}}, hint=SLOTS, session=session)


async def read_levels(database: Database, session: Session, buckets: Iterable[str]) -> dict[str, Level]:
    """What is stored of these buckets."""
    ids = [_BUCKET + key for key in sorted(buckets)]
    if not ids:
        return {}
    return _levels(await database.limits.find({"_id": {"$in": ids}}, hint="_id_", session=session).to_list())


async def write_levels(database: Database, session: Session, levels: Mapping[str, Level]) -> None:
    """Stores the levels of buckets."""
    if levels:
        writes = [
            UpdateOne({"_id": _BUCKET + key}, {"$set": {"level_u": level.level_u, "at_us": level.at_us}}, upsert=True)
            for key, level in sorted(levels.items())
        ]
        await database.limits.bulk_write(writes, session=session)


async def forget_buckets(database: Database, now_us: int) -> None:
    """Now and then, removes the buckets that nobody has touched for a long time."""
    database.charges_made += 1
    if database.charges_made % _FORGET_EVERY == 0:
        await database.limits.delete_many({"at_us": {"$lt": now_us - BUCKET_MEMORY_US}})


async def levels(database: Database) -> dict[str, Level]:
    """What is stored of every bucket."""
    return _levels(await database.limits.find({"_id": {"$gte": _BUCKET, "$lt": _BUCKET[:-1] + "!"}}).to_list())


def _levels(docs: Iterable[Doc]) -> dict[str, Level]:
    return {doc["_id"].removeprefix(_BUCKET): Level(int(doc["level_u"]), int(doc["at_us"])) for doc in docs}
