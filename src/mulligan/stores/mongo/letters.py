"""The optional dead-letter collection: a readable copy of each job that failed for good, for people and for other programs.

A job that fails (or is sent back) is marked in the same atomic write; the copy is made afterwards, and then the mark is taken off. If the
process ends in between, the mark stays, and the next sweep of any worker (`overdue`, about once a second) makes the copy. So a copy
may come late, and be made twice with the same content, but it is not missed.
"""

from __future__ import annotations

from typing import Any

import msgspec
from pymongo import ReplaceOne, UpdateOne

from mulligan.stores.mongo.database import Database, Doc
from mulligan.stores.mongo.rows import WITHOUT_RECEIPTS
from mulligan.stores.mongo.schema import LETTER

LETTERS_MAX = 500  # copied at a time

_any_decoder = msgspec.json.Decoder(Any)
# MongoDB nests a hundred levels deep, refuses integers over 64 bits, and keeps keys with $ and dots only with care.
_DEPTH_MAX = 60


async def copy_letters(database: Database) -> int:
    """Makes the copies that are due; how many."""
    if database.letters is None:
        return 0
    due = await database.jobs.find({"letter_due": True}, WITHOUT_RECEIPTS, hint=LETTER).limit(LETTERS_MAX).to_list()
    if not due:
        return 0
    await database.letters.bulk_write([_letter_write(doc) for doc in due], ordered=False)
    # Only the mark that was seen is taken off: the job may have failed again since.
    await database.jobs.bulk_write(
        [
            UpdateOne({"_id": doc["_id"], "settle_id": doc.get("settle_id"), "status": doc["status"]}, {"$unset": {"letter_due": 1}})
            for doc in due
        ],
        ordered=False,
    )
    return len(due)


def _letter_write(doc: Doc) -> ReplaceOne[Doc] | UpdateOne:
    generation = int(doc.get("generation", 1))
    if doc["status"] == "failed":
        letter_id = f"{doc['_id']}:{generation}"
        return ReplaceOne({"_id": letter_id}, letter_of(doc, letter_id), upsert=True)
    # It was sent back: the letter of the generation before says so.
    letter_id = f"{doc['_id']}:{generation - 1}"
    return UpdateOne({"_id": letter_id}, {"$set": {"requeued_at_us": doc.get("updated_at_us")}})


def letter_of(doc: Doc, letter_id: str) -> Doc:
    """The letter of a failed job. What was stored as JSON text is shown as values, where MongoDB can keep them."""
    return {
        "_id": letter_id,
        "job_id": doc["_id"],
        "generation": doc.get("generation"),
        "queue": doc.get("queue"),
        "task": doc.get("task"),
        "payload": _readable(doc.get("payload")),
        "error": _readable(doc.get("last_error")),
        "history": [_readable(record) for record in doc.get("history", [])],
        "tags": doc.get("tags", []),
        "attempts": doc.get("attempts"),
        "failures": doc.get("failures"),
        "crashes": doc.get("crashes"),
        "created_at_us": doc.get("created_at_us"),
        "failed_at_us": doc.get("finished_at_us"),
    }


def _readable(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    try:
        value = _any_decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text
    return value if _fits(value, _DEPTH_MAX) else text


def _fits(value: Any, depth: int) -> bool:
    if isinstance(value, dict):
        return depth > 0 and all(
            not key.startswith("$") and "." not in key and "\0" not in key and _fits(one, depth - 1) for key, one in value.items()
        )
    if isinstance(value, list):
        return depth > 0 and all(_fits(one, depth - 1) for one in value)
    return not isinstance(value, int) or -(2**63) <= value < 2**63
