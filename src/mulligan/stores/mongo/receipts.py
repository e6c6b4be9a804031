"""Receipts of finished steps: a list in the document of their job, written under the grip of its holder; the first of a name stays.

They are part of the document, so that one guarded update writes them, and so that they go and are restored with it. Nothing but this
module reads them: all others leave them out (rows.WITHOUT_HISTORY).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from pymongo import ReturnDocument

from mulligan.core.change import Grip
from mulligan.core.errors import StoreRejected, StoreUnavailable
from mulligan.core.receipt import RECEIPTS_BYTES_BEFORE, RECEIPTS_MAX, Receipt, in_order, too_large, too_many, undecodable
from mulligan.stores.mongo.database import Database, Doc

_ROOM: Doc = {
    "$or": [{"receipts": {"$exists": False}}, {"receipts": {"$type": "array"}, f"receipts.{RECEIPTS_MAX - 1}": {"$exists": False}}]
}
# A document may have 16 MB, of which everything else in a job may take 12. What receipts take in it is a little less than what they count.
_BYTES: Doc = {"$bsonSize": {"all": "$receipts"}}
_PROBLEMS = (msgspec.ValidationError, TypeError)


async def put_receipt(database: Database, grip: Grip, name: str, value_json: str | None) -> Receipt | None:
    """Stores the receipt of a step, or finds the one that is there; None if the grip does not hold."""
    held: Doc = {"_id": grip.job_id, "status": "processing", "fence": grip.fence}
    entry: Doc = {"name": {"$literal": name}, "value": {"$literal": value_json}, "fence": grip.fence, "at_us": database.now_term()}
    longer: Doc = {"$concatArrays": [{"$ifNull": ["$receipts", []]}, [entry]]}
    only: Doc = {"receipts": {"$elemMatch": {"name": name}}}
    written = await database.jobs.find_one_and_update(
        {**held, "receipts.name": {"$ne": name}, **_ROOM, "$expr": {"$lt": [_BYTES, RECEIPTS_BYTES_BEFORE]}},
        [{"$set": {"receipts": longer}}],
        projection=only,
        return_document=ReturnDocument.AFTER,
    )
    if written is not None:
        return _receipt_of(written["receipts"][0])
    known = await database.jobs.find_one(held, only)
    if known is None:
        return None
    if known.get("receipts"):
        await database.confirm()  # the write this repeats may not have reached the majority yet
        return _receipt_of(known["receipts"][0])
    if await database.jobs.find_one({**held, **_ROOM}, {"_id": 1}) is None:
        whole = await database.jobs.find_one({"_id": grip.job_id, "receipts": {"$type": "array"}}, {"_id": 1})
        raise StoreRejected(f"job {grip.job_id}: its receipts are damaged") if whole is None else too_many(grip.job_id)
    if await database.jobs.find_one({**held, "$expr": {"$gte": [_BYTES, RECEIPTS_BYTES_BEFORE]}}, {"_id": 1}) is not None:
        raise too_large(grip.job_id)
    raise StoreUnavailable(f"job {grip.job_id} is being changed by others; nothing is lost, the same call may be repeated")


async def receipts(database: Database, ids: Sequence[str]) -> list[list[Receipt]]:
    """The receipts of each job, in the order in which they were stored."""
    wanted: Doc = {"_id": {"$in": list(dict.fromkeys(ids))}, "receipts": {"$exists": True}}
    found = {doc["_id"]: _all_of(doc["receipts"]) for doc in await database.docs(database.seen_jobs, wanted, {"receipts": 1})}
    return [found.get(job_id, []) for job_id in ids]


def documents_of(receipts: Sequence[Receipt]) -> list[Doc]:
    """Receipts as they stand in a document."""
    return [{"name": one.name, "value": one.value_json, "fence": one.fence, "at_us": one.at_us} for one in receipts]


def _all_of(entries: Any) -> list[Receipt]:
    return in_order(_receipt_of(entry) for entry in entries) if isinstance(entries, list) else [undecodable("receipts", "not a list")]


def _receipt_of(entry: Any) -> Receipt:
    name = str(entry.get("name")) if isinstance(entry, dict) else "?"
    try:
        fields = {"name": name, "value_json": entry["value"], "fence": entry["fence"], "at_us": entry["at_us"]}
        return msgspec.convert(fields, Receipt)
    except (*_PROBLEMS, KeyError) as problem:
        return undecodable(name, problem)
