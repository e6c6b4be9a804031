"""The store's bounded event log: what other processes and later readers see.

The events stand in documents of up to CHUNK_MAX, named by the number of events before them. An append is one atomic change of the last
document, so numbers rise in the order in which events become visible, and a reader who goes on from the last number it saw misses none.
A full document is closed before the next one is made; nothing is ever added to a closed one.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from pymongo import ReturnDocument
from pymongo.errors import DuplicateKeyError

from mulligan.core.errors import StoreUnavailable
from mulligan.core.events import EVENT_LOG_MAX, Event
from mulligan.core.ids import new_id
from mulligan.stores.mongo.database import Database, Doc

CHUNK_MAX = 200
_TRIES = 50

_encode = msgspec.json.Encoder().encode
_event_decoder = msgspec.json.Decoder(Event)


async def find_end(database: Database) -> None:
    """Finds the end of the log when a store is opened, so that the first append is as quick as the others."""
    newest = await _newest(database)
    if newest is None:
        await _move_on(database, 0)
    else:
        database.last_chunk = newest


async def _newest(database: Database) -> int | None:
    # Read as it is now: what no majority has confirmed yet is the end of the log all the same.
    events = database.events.with_options(read_concern=database.jobs.read_concern)
    doc = await events.find_one({}, {"_id": 1}, sort=[("_id", -1)])
    return None if doc is None else int(doc["_id"])


async def append_events(database: Database, events: Sequence[Event]) -> None:
    """Writes events at the end of the log, and forgets the oldest beyond its bound."""
    texts = [_encode(event).decode() for event in events]
    for at in range(0, len(texts), CHUNK_MAX):
        await _append(database, texts[at : at + CHUNK_MAX])


async def _append(database: Database, texts: list[str]) -> None:
    # The driver sends a write whose connection broke once more; by this name the server knows that it has it already.
    name = new_id(0)
    for _ in range(_TRIES):
        chunk = database.last_chunk
        open_one = {"_id": chunk, "closed": False, "names": {"$ne": name}}
        pushed = {"$push": {"events": {"$each": texts}, "names": name}}
        written = await database.events.update_one({**open_one, f"events.{CHUNK_MAX - len(texts)}": {"$exists": False}}, pushed)
        if written.matched_count:
            return
        if await database.events.find_one({"_id": chunk, "names": name}, {"_id": 1}) is not None:
            return
        await _move_on(database, chunk)
    raise StoreUnavailable("the event log of the store is too busy; nothing is wrong with the jobs")


async def _move_on(database: Database, chunk: int) -> None:
    """Finds the last document of the log, or closes it and makes the next one."""
    newest = await _newest(database)
    if newest is not None and newest != chunk:
        database.last_chunk = newest
        return
    after = 0
    if newest is not None:
        closed = await database.events.find_one_and_update(
            {"_id": chunk},
            [{"$set": {"closed": True}}],
            projection={"count": {"$size": "$events"}},
            return_document=ReturnDocument.AFTER,
        )
        after = chunk + int(closed["count"]) if closed is not None else chunk
    try:
        await database.events.insert_one({"_id": after, "closed": False, "names": [], "events": []})
    except DuplicateKeyError:
        pass  # another process made it
    else:
        # One document more than the bound is kept, because the newest one begins empty.
        await database.events.delete_many({"_id": {"$lt": after - EVENT_LOG_MAX - CHUNK_MAX}})
    database.last_chunk = after


async def read_events(database: Database, after_seq: int, limit: int) -> list[Event]:
    """The events after a place in the log, oldest first. One that cannot be decoded is passed over."""
    if limit <= 0:
        return []
    newest = await database.events.find_one({}, {"count": {"$size": "$events"}}, sort=[("_id", -1)])
    if newest is None:
        return []
    last = int(newest["_id"]) + int(newest["count"])
    first = max(after_seq, last - EVENT_LOG_MAX)  # the place before the first one wanted
    chunks = database.events.find({"_id": {"$gt": first - CHUNK_MAX, "$lt": first + limit}}, {"events": 1}).sort("_id", 1)
    events: list[Event] = []
    for chunk in await chunks.to_list():
        events += _wanted(chunk, first, limit - len(events))
    return events


def _wanted(chunk: Doc, after_seq: int, limit: int) -> list[Event]:
    events: list[Event] = []
    for seq, text in enumerate(chunk["events"], int(chunk["_id"]) + 1):
        if seq > after_seq and len(events) < limit:
            try:
                events.append(msgspec.structs.replace(_event_decoder.decode(text), seq=seq))
            except (msgspec.DecodeError, TypeError):
                continue
    return events
