"""Notes: small texts that all processes share, written only over the version that was read."""

from __future__ import annotations

from pymongo import ReturnDocument
from pymongo.errors import DuplicateKeyError

from mulligan.core.contract import Note
from mulligan.stores.mongo.database import Database, Doc

_LAST = "\U0010ffff"
_BEFORE_SURROGATES, _AFTER_SURROGATES = "\ud7ff", "\ue000"  # no text has what lies between


async def notes(database: Database, prefix: str) -> list[Note]:
    """The notes whose key begins so, by key."""
    query: Doc = {"_id": {"$gte": prefix}}
    behind = _behind(prefix)
    if behind:
        query["_id"]["$lt"] = behind
    return [_note_of(doc) for doc in await database.notes.find(query, hint="_id_").sort("_id", 1).to_list()]


def _behind(prefix: str) -> str:
    """The first text after all those that begin so; empty if there is none. Texts sort by code points, as the server compares them."""
    rest = prefix.rstrip(_LAST)
    if not rest:
        return ""
    return rest[:-1] + (_AFTER_SURROGATES if rest[-1] == _BEFORE_SURROGATES else chr(ord(rest[-1]) + 1))


async def put_note(database: Database, key: str, body: str, version: int) -> Note | None:
    """Writes a note over the version given; None if it has another one."""
    values: Doc = {"body": {"$literal": body}, "version": version + 1, "updated_at_us": database.now_term()}
    as_read: Doc = {"_id": key, "version": version or {"$exists": False}}
    try:
        written = await database.notes.find_one_and_update(
            as_read, [{"$set": values}], upsert=version == 0, return_document=ReturnDocument.AFTER
        )
    except DuplicateKeyError:  # there is one, and so it has another version than none
        written = None
    if written is not None:
        return _note_of(written)
    known = await database.notes.find_one({"_id": key})
    if known is None or (known["version"], known["body"]) != (version + 1, body):
        return None
    await database.confirm()  # the write this repeats may not have reached the majority yet
    return _note_of(known)


def _note_of(doc: Doc) -> Note:
    return Note(key=doc["_id"], body=doc["body"], version=int(doc["version"]), updated_at_us=int(doc["updated_at_us"]))
