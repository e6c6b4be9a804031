"""Wake-up hints between processes: documents in a small capped collection, which every store follows as `tail -f` follows a file.

A change stream would tell the same. But for a change stream the server reads the log of the whole set, every write of every job, once for
each process that listens: with one listener, claims and settles took it twice the processor time. A capped collection is read by itself.
Its readers are woken by the write, without waiting for a majority: a hint follows an insert that the majority has confirmed.
"""

from __future__ import annotations

from pymongo import CursorType
from pymongo.asynchronous.cursor import AsyncCursor
from pymongo.errors import OperationFailure

from mulligan.stores.mongo.database import Database, Doc

Tail = AsyncCursor[Doc]
HINTS = "mulligan_hints"
BYTES_MAX = 65_536  # several hundred hints; who falls further behind than that begins anew, with a hint to itself
HEAR_MS = 1_000  # so long the server keeps a question for news before it answers that there is none
_NOT_CAPPED, _EXISTS = 2, 48  # the server's codes for "tailable cursor requested on non capped collection" and "it exists"


async def spread(database: Database) -> None:
    """Tells every process that follows."""
    await database.hints.insert_one({"by": database.token})


async def make(database: Database) -> None:
    """Makes the collection, if it is missing."""
    try:
        await database.plain.create_collection(HINTS, check_exists=False, capped=True, size=BYTES_MAX)
    except OperationFailure as problem:
        if problem.code != _EXISTS:
            raise


async def follow(database: Database) -> Tail:
    """A tail that has begun. What stands in the collection may be told once more; close it when done."""
    try:
        tail = await _begun(database)
    except OperationFailure as problem:
        if problem.code != _NOT_CAPPED:
            raise
        # Somebody removed it, and a hint made it again as a plain one.
        await database.plain.command("convertToCapped", HINTS, size=BYTES_MAX)
        tail = await _begun(database)
    if not tail.alive:  # in an empty collection there is no place to begin at
        await tail.close()
        await make(database)
        await spread(database)
        tail = await _begun(database)
    return tail


async def _begun(database: Database) -> Tail:
    # This process was told already by `announce`, so its own hints are left out.
    others = {"by": {"$ne": database.token}}
    tail = database.hints.find(others, {"_id": 1}, cursor_type=CursorType.TAILABLE_AWAIT).max_await_time_ms(HEAR_MS)
    try:
        await anext(tail, None)
    except BaseException:
        await tail.close()
        raise
    return tail
