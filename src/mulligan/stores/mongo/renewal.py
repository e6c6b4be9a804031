"""Renewals: leases are lengthened together, in one write; only an ended one that gave up slots has to ask for them again.

The write leaves out the jobs that were claimed under slots, or have a concurrency key, and whose lease has ended. Those are judged one by
one in a transaction, which takes turns with the claims that count the same slots (limits.py).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from mulligan.core.change import Grip
from mulligan.core.contract import Renewal
from mulligan.core.limits import Scope, scopes_of
from mulligan.stores.mongo.database import Database, Doc, Session
from mulligan.stores.mongo.limits import count, take_turns
from mulligan.stores.mongo.take import guarded
from mulligan.stores.mongo.transaction import in_transaction

_FIELDS = dict.fromkeys(("queue", "lane", "fence", "cancel_requested", "lease_expires_at_us", "slots", "concurrency_key", "given_away"), 1)


async def lengthen(database: Database, grips: Sequence[Grip], lease_us: int, rng: random.Random) -> list[Renewal]:
    """Lengthens the leases that are still held."""
    if not grips:
        return []
    now = database.now_term()
    wanted = guarded({"status": "processing", **_may_go_on(now)}, [(grip.job_id, grip.fence) for grip in grips])
    lengthened = {"$add": [now, lease_us]}
    renewed = await database.jobs.update_many(wanted, [{"$set": {"lease_expires_at_us": lengthened}}], hint="_id_")
    all_held = renewed.matched_count == len({(grip.job_id, grip.fence) for grip in grips})
    # Read after the write: what is held now was held then, because a fence only ever rises. (A lease that was made so short that it
    # is over by now was held all the same; only where others were not, it cannot be told from them, and counts as lost.)
    docs = await _read(database, {grip.job_id for grip in grips})
    answers = [_renewal(grip, docs.get(grip.job_id), all_held=all_held) for grip in grips]
    if all_held or not any(_counts_for_slots(doc) for doc in docs.values()):
        return answers
    now_us = await database.now_us()
    late = [grip for grip in grips if _is_late(docs.get(grip.job_id), grip, now_us)]
    if not late:
        return answers
    async with database.careful:
        regained = await in_transaction(database, rng, lambda session: _regain(database, session, late, lease_us))
    judged = iter(regained)
    return [answer if grip not in late else next(judged) for grip, answer in zip(grips, answers, strict=True)]


def _may_go_on(now: Any) -> Doc:
    """Of a job that slots may be counted by: its lease has not ended, and nobody has taken it for ended."""
    uncounted = [{"$eq": [{"$type": f"${field}"}, "missing"]} for field in ("slots", "concurrency_key")]
    alive = [{"$gt": ["$lease_expires_at_us", now]}, {"$ne": ["$given_away", True]}]
    return {"$expr": {"$or": [{"$and": uncounted}, {"$and": alive}]}}


def _counts_for_slots(doc: Doc) -> bool:
    return "slots" in doc or "concurrency_key" in doc


def _is_late(doc: Doc | None, grip: Grip, now_us: int) -> bool:
    if doc is None or doc.get("fence") != grip.fence or not _counts_for_slots(doc):
        return False
    return doc.get("given_away") is True or int(doc.get("lease_expires_at_us", 0)) <= now_us


def _renewal(grip: Grip, doc: Doc | None, *, all_held: bool) -> Renewal:
    if doc is None or doc.get("fence") != grip.fence:
        return Renewal(job_id=grip.job_id, fence=grip.fence, held=all_held)
    return Renewal(job_id=grip.job_id, fence=grip.fence, held=True, cancel_requested=doc.get("cancel_requested") is True)


async def _read(database: Database, ids: set[str], session: Session | None = None) -> dict[str, Doc]:
    query = {"_id": {"$in": sorted(ids)}, "status": "processing"}
    return {doc["_id"]: doc for doc in await database.jobs.find(query, _FIELDS, hint="_id_", session=session).to_list()}


async def _regain(database: Database, session: Session, grips: Sequence[Grip], lease_us: int) -> list[Renewal]:
    """Judges late renewals in their order, each seeing those before it."""
    now_us = await database.now_us()
    docs = await _read(database, {grip.job_id for grip in grips}, session)
    if docs:
        await take_turns(database, session, {str(doc["queue"]) for doc in docs.values()})
    slots = {job_id: scopes_of(doc["slots"], doc["queue"], doc.get("concurrency_key")) for job_id, doc in docs.items() if "slots" in doc}
    counts = await count(database, session, {scope for scopes in slots.values() for scope, _ in scopes}, now_us)
    renewed: dict[str, Doc] = {}
    answers = []
    for grip in grips:
        doc = docs.get(grip.job_id)
        held = doc is not None and doc.get("fence") == grip.fence
        if doc is not None and held and grip.job_id not in renewed and doc["lease_expires_at_us"] <= now_us:
            held = all(counts[scope] < most for scope, most in slots.get(grip.job_id, ()))
            if held:
                counts = {scope: number + _is_in(doc, scope) for scope, number in counts.items()}
        if held:
            renewed[grip.job_id] = doc or {}
        answers.append(_renewal(grip, doc if held else None, all_held=False))
    if renewed:
        change = {"$set": {"lease_expires_at_us": now_us + lease_us}, "$unset": {"given_away": 1}}
        await database.jobs.update_many({"_id": {"$in": sorted(renewed)}}, change, hint="_id_", session=session)
    else:
        await session.abort_transaction()
    return answers


def _is_in(doc: Doc, scope: Scope) -> bool:
    """Whether a job takes one of a number of slots."""
    counted = "slots" in doc if scope.key is None else doc.get("concurrency_key") == scope.key
    return counted and doc.get("queue") == scope.queue and scope.lane in (None, doc.get("lane"))
