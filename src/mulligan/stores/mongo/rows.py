"""Jobs into documents and back.

A document has the fields of Job under their names, without those that are None, empty or false. Payload, policy, error, result and the
records of the history are texts: what is in them never meets MongoDB's rules for keys. Beside them stand the fields indexes are about
(schema.py). A document that cannot be decoded (edited by hand) must not keep the others from being read:
- a claim or a sweep that meets one sets it to failed, with an error of type Undecodable that says why (quarantine);
- get and find show it as well as it can be shown, with that error as its last one; they change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, get_args

import msgspec

from mulligan.core.events import Event
from mulligan.core.groups import is_group
from mulligan.core.job import HISTORY_MAX, LANES, LIVE, ErrorInfo, HistoryRecord, Job
from mulligan.stores.mongo.database import Database, Doc
from mulligan.stores.mongo.eventlog import append_events
from mulligan.stores.mongo.schema import live_key_of, rest_of, waiting_place

UNDECODABLE = "Undecodable"
COLUMNS: tuple[str, ...] = tuple(name for name in Job.__struct_fields__ if name not in ("read_at_us", "history"))
WITHOUT_RECEIPTS = {"receipts": 0}  # a handful of megabytes at most, which nobody wants who reads a job
WITHOUT_HISTORY = {"history": 0, **WITHOUT_RECEIPTS}
# What a job that waits or runs has and one at rest has not; each write of a new status sets its own and removes the others.
OF_WAITING = ("run_at_us", "line", "fifo_line", "turn_line", "turn_due")
# `slots`: those it was claimed under (core/limits); `given_away`: another may have them now (limits.py).
OF_RUNNING = ("claim_id", "lease_owner", "lease_expires_at_us", "slots", "given_away")
OF_REST = ("finished_at_us", "rest")

_PLAIN = tuple((name, "_id" if name == "id" else name) for name in COLUMNS)
_EMPTY: Doc = {**dict.fromkeys(key for _, key in _PLAIN), "tags": (), "cancel_requested": False}
_in_order = itemgetter(*(key for _, key in _PLAIN), "read_at_us")
_TYPES = {field.name: field.type for field in msgspec.structs.fields(Job)}
_error_decoder = msgspec.json.Decoder(dict[str, Any] | None)
_record_decoder = msgspec.json.Decoder(HistoryRecord)
_encode = msgspec.json.Encoder().encode


class Bad(NamedTuple):
    """A document that could not be decoded, and why."""

    doc: Doc
    job: Job  # as well as it can be shown
    reason: str


def to_json(value: object) -> str:
    """JSON text to be stored."""
    return _encode(value).decode()


def document_of(job: Job) -> Doc:
    """The document of a job of any status, history included."""
    doc: Doc = {"_id": job.id}
    for name in COLUMNS[1:]:
        value = getattr(job, name)
        if value is not None and value is not False and value != ():
            doc[name] = value
    if job.tags:
        doc["tags"] = list(job.tags)
    if job.last_error is not None:
        doc["last_error"] = to_json(job.last_error)
    if job.history:
        doc["history"] = [to_json(record) for record in job.history[-HISTORY_MAX:]]
    if job.status == "pending":
        doc |= waiting_place(job.queue, job.lane, job.priority, job.group)
    elif job.status != "processing":
        doc["rest"] = rest_of(job.queue, job.status)
    if job.unique_key is not None and job.status in LIVE:
        doc["live_key"] = live_key_of(job.queue, job.unique_key)
    return doc


def decoded(doc: Doc, now_us: int) -> Job | Bad:
    """The job of a document, without its history."""
    try:
        fields = {**_EMPTY, **doc, "read_at_us": now_us}
        if fields["last_error"] is not None:
            fields["last_error"] = _error_decoder.decode(fields["last_error"])
        job = msgspec.convert(_in_order(fields), Job)
        return job if job.group is None or is_group(job.group) else _salvaged(doc, now_us)
    except (msgspec.ValidationError, msgspec.DecodeError, TypeError, UnicodeError):
        return _salvaged(doc, now_us)


def shown(docs: Iterable[Doc], now_us: int) -> list[Job]:
    """The jobs of documents, those that cannot be decoded as well as they can be shown."""
    return [row.job if isinstance(row, Bad) else row for row in (decoded(doc, now_us) for doc in docs)]


def history_of(doc: Doc) -> tuple[HistoryRecord, ...]:
    """The records of a document, newest last."""
    records = doc.get("history", [])
    return tuple(_record_of(text) for text in records) if isinstance(records, list) else (_record_of(records),)


def _record_of(text: object) -> HistoryRecord:
    try:
        return _record_decoder.decode(text)  # type: ignore[arg-type]  # whatever stands there
    except (msgspec.DecodeError, TypeError, UnicodeError) as problem:
        return HistoryRecord(generation=0, fence=0, attempt=0, outcome="undecodable", why=f"the stored record cannot be decoded: {problem}")


def _salvaged(doc: Doc, now_us: int) -> Job | Bad:
    fields: dict[str, Any] = {}
    reasons = []
    for name, key in _PLAIN:
        value = doc.get(key)
        try:
            fields[name] = msgspec.convert(_value_of(name, value), _TYPES[name])
        except (msgspec.ValidationError, msgspec.DecodeError, TypeError, ValueError) as problem:
            reasons.append(f"field {name}: {problem}")
            fields[name] = _stand_in(name, value)
    job = Job(**fields, read_at_us=now_us)
    if not reasons:
        return job
    reason = "; ".join(reasons)
    error = ErrorInfo(type=UNDECODABLE, message=f"the stored document cannot be decoded: {reason}"[:4_000])
    return Bad(doc, msgspec.structs.replace(job, last_error=error), reason[:4_000])


_SAFE: dict[str, Any] = {"status": "failed", "lane": LANES[0], "tags": (), "last_error": None, "cancel_requested": False}


def _value_of(name: str, value: Any) -> Any:
    if name == "tags":
        return () if value is None else value
    if name == "cancel_requested":
        return False if value is None else value
    if name == "group" and isinstance(value, str) and not is_group(value):
        raise ValueError("this text is no group")
    return _error_decoder.decode(value) if name == "last_error" and value is not None else value


def _stand_in(name: str, value: Any) -> Any:
    """Something of the right type to show in place of a value that cannot be decoded."""
    if name in _SAFE:
        return _SAFE[name]
    if type(None) in get_args(_TYPES[name]):
        return None
    return 0 if _TYPES[name] is int else str(value)


async def sorted_out(database: Database, docs: Sequence[Doc], now_us: int) -> list[Job]:
    """The jobs of documents that can be decoded; the others are quarantined."""
    good: list[Job] = []
    for row in [decoded(doc, now_us) for doc in docs]:
        if isinstance(row, Bad):
            await quarantine(database, row, now_us)
        else:
            good.append(row)
    return good


async def quarantine(database: Database, bad: Bad, now_us: int) -> None:
    """Sets a live document that cannot be decoded to failed, so that it is seen by people and no longer by workers."""
    job = bad.job
    error = msgspec.structs.replace(job.last_error or ErrorInfo(type=UNDECODABLE, message=bad.reason), at_us=now_us)
    record = HistoryRecord(
        generation=job.generation,
        fence=job.fence,
        attempt=job.attempts,
        outcome="undecodable",
        ended_at_us=now_us,
        error=error,
        why=bad.reason,
    )
    values = {
        "status": "failed",
        "finished_at_us": now_us,
        "updated_at_us": now_us,
        "last_error": to_json(error),
        "rest": rest_of(job.queue, "failed"),
    }
    if not isinstance(bad.doc.get("history", []), list):
        await database.jobs.update_one({"_id": bad.doc["_id"]}, {"$unset": {"history": 1}})
    written = await database.jobs.update_one(
        {"_id": bad.doc["_id"], "status": {"$in": sorted(LIVE)}},
        {
            "$set": values,
            "$unset": dict.fromkeys((*OF_WAITING, *OF_RUNNING, "live_key"), 1),
            "$push": {"history": {"$each": [to_json(record)], "$slice": -HISTORY_MAX}},
        },
    )
    if written.modified_count:
        detail = {"final": True, "cause": "undecodable", "error": UNDECODABLE, "message": error.message[:200], "why": bad.reason}
        event = Event(
            kind="FAILED",
            at_us=now_us,
            job_id=job.id,
            queue=job.queue,
            task=job.task,
            fence=job.fence,
            attempt=job.attempts,
            detail=detail,
        )
        await append_events(database, [event])
