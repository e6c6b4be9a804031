"""Leases: lengthening them, finding those that have ended, and telling their holders to stop."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec

from mulligan.core.change import Grip
from mulligan.core.clock import SECOND_US
from mulligan.core.contract import CancelAnswer, Renewal, WorkerInfo
from mulligan.core.errors import StoreUnavailable
from mulligan.core.events import Event
from mulligan.core.job import Job
from mulligan.stores.mongo.database import Database, Doc
from mulligan.stores.mongo.eventlog import append_events
from mulligan.stores.mongo.letters import copy_letters
from mulligan.stores.mongo.renewal import lengthen
from mulligan.stores.mongo.rows import OF_WAITING, WITHOUT_HISTORY, sorted_out, to_json
from mulligan.stores.mongo.schema import LEASE

WORKER_MEMORY_US = 3_600 * SECOND_US  # how long a silent worker is listed
_ROUNDS = 20

_worker_decoder = msgspec.json.Decoder(WorkerInfo)


async def renew(database: Database, grips: Sequence[Grip], lease_us: int, worker: WorkerInfo | None, rng: random.Random) -> list[Renewal]:
    """Lengthens the leases that are still held, and notes that the worker lives."""
    answers = await lengthen(database, grips, lease_us, rng)
    if worker is not None:
        now = database.now_term()
        seen: Doc = {"seen_at_us": now, "body": {"$literal": to_json(worker)}}
        await database.workers.update_one({"_id": worker.id}, [{"$set": seen}], upsert=True)
        await database.workers.delete_many({"$expr": {"$lt": ["$seen_at_us", {"$subtract": [now, WORKER_MEMORY_US]}]}})
    return answers


async def workers(database: Database) -> list[WorkerInfo]:
    """The workers that reported themselves within the last hour, by id."""
    docs = await database.workers.find({}).sort("_id", 1).to_list()
    return [msgspec.structs.replace(_worker_decoder.decode(doc["body"]), seen_at_us=int(doc["seen_at_us"])) for doc in docs]


async def overdue(database: Database, limit: int) -> list[Job]:
    """Processing jobs whose lease has ended, the oldest end first. Takes nothing over; quarantines what cannot be decoded."""
    await copy_letters(database)
    if limit <= 0:
        return []
    now_us = await database.now_us()
    lapsed = {"lease_expires_at_us": {"$lte": now_us}}
    order = [("lease_expires_at_us", 1), ("_id", 1)]
    return await sorted_out(
        database, await database.docs(database.jobs, lapsed, WITHOUT_HISTORY, hint=LEASE, sort=order, limit=limit), now_us
    )


async def request_cancel(database: Database, ids: Sequence[str], call: str) -> list[CancelAnswer]:
    """Cancels pending jobs at once, and asks the holders of processing ones to stop. By the name of the call, which its repeats have
    too, it knows afterwards which jobs it was that cancelled."""
    now_us = await database.now_us()
    answers: dict[str, CancelAnswer] = {}
    left = sorted(set(ids))
    for number in range(_ROUNDS):
        docs = await _cancel(database, left, call, now_us)
        events = [_cancelled(doc, now_us) for doc in docs if doc.get("cancel_call") == call]
        for job_id in left:
            answer = _answer(next((doc for doc in docs if doc["_id"] == job_id), None))
            if answer is not None:
                answers[job_id] = answer
        order = {job_id: place for place, job_id in enumerate(dict.fromkeys(ids))}
        await append_events(database, sorted(events, key=lambda event: order[event.job_id]), f"{call}.{number}")
        left = [job_id for job_id in left if job_id not in answers]
        if not left:
            return [answers[job_id] for job_id in ids]
    raise StoreUnavailable("these jobs are changed by others all the time; nothing is lost, the same call may be repeated")


async def _cancel(database: Database, ids: list[str], call: str, now_us: int) -> list[Doc]:
    values: Doc = {
        "status": {"$literal": "cancelled"},
        "cancel_requested": True,
        "finished_at_us": now_us,
        "updated_at_us": now_us,
        "rest": {"$concat": ["cancelled ", "$queue"]},
        "cancel_call": {"$literal": call},
    }
    values |= dict.fromkeys((*OF_WAITING, "live_key"), "$$REMOVE")
    await database.jobs.update_many({"_id": {"$in": ids}, "status": "pending"}, [{"$set": values}], hint="_id_")
    await database.jobs.update_many({"_id": {"$in": ids}, "status": "processing"}, {"$set": {"cancel_requested": True}}, hint="_id_")
    fields = ("status", "cancel_requested", "cancel_call", "queue", "task", "fence", "attempts")
    return await database.jobs.find({"_id": {"$in": ids}}, dict.fromkeys(fields, 1), hint="_id_").to_list()


def _answer(doc: Doc | None) -> CancelAnswer | None:
    """What is known after the attempt; None if the job slipped through between its two halves, and it must be made again."""
    if doc is None:
        return "missing"
    if doc["status"] == "processing":
        return "requested" if doc.get("cancel_requested") is True else None
    if doc["status"] == "pending":
        return None
    return "cancelled" if doc["status"] == "cancelled" else "finished"


def _cancelled(doc: Doc, now_us: int) -> Event:
    return Event(
        kind="CANCELLED",
        at_us=now_us,
        job_id=str(doc["_id"]),
        queue=str(doc.get("queue")),
        task=str(doc.get("task")),
        fence=int(doc.get("fence", 0)),
        attempt=int(doc.get("attempts", 0)),
    )
