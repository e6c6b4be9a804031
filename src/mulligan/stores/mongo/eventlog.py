"""The store's bounded event log: what other processes and later readers see.

The events stand in documents that are named by the number of events before them. An append is one atomic change of the last document, or
the next document, so numbers rise in the order in which events become visible, and a reader who goes on from the last number it saw misses
none. A document is closed before the next one is made; nothing is ever added to a closed one. Appends gather in one document up to
SHARED_MAX, since each writes all of it anew; a batch that is wider becomes a document of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress

import msgspec
from pymongo import ReturnDocument
from pymongo.errors import DuplicateKeyError, PyMongoError

from mulligan.core.errors import StoreUnavailable
from mulligan.core.events import EVENT_LOG_MAX, Event
from mulligan.core.ids import new_id
from mulligan.stores.mongo.database import Database, Doc

SHARED_MAX = 200
WIDE_MAX = 1_000
WIDE_CHARS_MAX = 4_000_000  # a document may have 16 MB
_TRIES = 50
_WAIT_S = 0.002

_encode = msgspec.json.Encoder().encode
_event_decoder = msgspec.json.Decoder(Event)


async def find_end(database: Database) -> None:
    """Finds the end of the log when a store is opened, so that the first append is as quick as the others."""
    database.last_chunk = await _newest(database)


async def _newest(database: Database) -> int:
    # Read as it is now: what no majority has confirmed yet is the end of the log all the same.
    doc = await database.quick_events.find_one({}, {"_id": 1}, sort=[("_id", -1)])
    if doc is not None:
        return int(doc["_id"])
    with suppress(DuplicateKeyError):  # another process made it
        await database.events.insert_one({"_id": 0, "closed": False, "names": [], "events": []})
    return 0


async def append_events(database: Database, events: Sequence[Event], name: str = "") -> None:
    """Writes events at the end of the log, and forgets the oldest beyond its bound. A call that is repeated gives the same name again, by
    which the last document knows that it has them already."""
    name = name or new_id(0)
    texts = [_encode(event).decode() for event in events]
    for number, portion in enumerate(_portions(texts)):
        await _append(database, f"{name}.{number}", portion)


def _portions(texts: list[str]) -> Iterator[list[str]]:
    """The texts in their order, in lists that are bounded in number and in size."""
    begin = chars = 0
    for at, text in enumerate(texts):
        if at - begin >= WIDE_MAX or (at > begin and chars + len(text) > WIDE_CHARS_MAX):
            yield texts[begin:at]
            begin, chars = at, 0
        chars += len(text)
    if begin < len(texts):
        yield texts[begin:]


async def _append(database: Database, name: str, texts: list[str]) -> None:
    # The driver, too, sends a write whose connection broke once more.
    for tried in range(_TRIES):
        await asyncio.sleep(database.rng.uniform(0, _WAIT_S * tried))  # those who lost to the same one should not meet again
        if not database.is_last_chunk_full and await _added(database, name, texts):
            return
        database.is_last_chunk_full = False
        if await _begun(database, name, texts):
            return
    raise StoreUnavailable("the event log of the store is too busy; nothing is wrong with the jobs")


async def _added(database: Database, name: str, texts: list[str]) -> bool:
    """Adds the texts to the last document, if they fit in; an empty one takes any number."""
    chunk = database.last_chunk
    fits = {f"events.{max(0, SHARED_MAX - len(texts))}": {"$exists": False}}
    pushed = {"$push": {"events": {"$each": texts}, "names": name}}
    written = await database.events.update_one({"_id": chunk, "closed": False, "names": {"$ne": name}, **fits}, pushed)
    return bool(written.matched_count) or await database.events.find_one({"_id": chunk, "names": name}, {"_id": 1}) is not None


async def _begun(database: Database, name: str, texts: list[str]) -> bool:
    """Closes the last document and makes the next one, of these texts. False if it was not the last one: then that is found."""
    chunk = database.last_chunk
    closed = await database.events.find_one_and_update(
        {"_id": chunk, "events.0": {"$exists": True}},
        [{"$set": {"closed": True}}],
        projection={"count": {"$size": "$events"}},
        return_document=ReturnDocument.AFTER,
    )
    if closed is None:  # it is empty, or gone
        await find_end(database)
        return False
    after = chunk + int(closed["count"])
    try:
        await database.events.insert_one({"_id": after, "closed": False, "names": [name], "events": texts})
    except DuplicateKeyError:  # another process was quicker
        await find_end(database)
        return False
    database.last_chunk, database.is_last_chunk_full = after, len(texts) >= SHARED_MAX
    with suppress(PyMongoError):  # the events are written, and whoever makes the next document sees to this, too
        await database.quick_events.delete_many({"_id": {"$lt": after - EVENT_LOG_MAX - WIDE_MAX}})
    return True


async def read_events(database: Database, after_seq: int, limit: int) -> list[Event]:
    """The events after a place in the log, oldest first. One that cannot be decoded is passed over."""
    after_seq, limit = max(0, after_seq), min(limit, EVENT_LOG_MAX)
    if limit <= 0:
        return []
    newest = await database.events.find_one({}, {"count": {"$size": "$events"}}, sort=[("_id", -1)])
    if newest is None:
        return []
    last = int(newest["_id"]) + int(newest["count"])
    first = max(after_seq, last - EVENT_LOG_MAX)  # the place before the first one wanted
    if first >= last:
        return []
    holder = await database.events.find_one({"_id": {"$lte": first}}, {"_id": 1}, sort=[("_id", -1)])
    begin = first if holder is None else int(holder["_id"])
    chunks = database.events.find({"_id": {"$gte": begin, "$lt": first + limit}}, {"events": 1}).sort("_id", 1)
    events: list[Event] = []
    end = begin
    for chunk in await chunks.to_list():
        if events and chunk["_id"] != end:
            break  # more was added to the one before since it was read, and closed: the next call reads that
        events += _wanted(chunk, first, limit - len(events))
        end = int(chunk["_id"]) + len(chunk["events"])
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
