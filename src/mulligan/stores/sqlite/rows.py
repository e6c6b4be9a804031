"""Jobs out of the file. SQLite makes one JSON text of many rows, and one decoder makes the Job values straight from it.

A row that cannot be decoded (edited by hand, damaged) must not keep the others from being read. Then the rows are read one by one:
- a claim or a sweep that meets such a row sets it to failed, with an error of type Undecodable that says why (quarantine);
- get and find show it as well as it can be shown, with that error as its last one; they change nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, NamedTuple, get_args

import msgspec

from mulligan.core.events import Event
from mulligan.core.groups import is_group
from mulligan.core.job import LANES, ErrorInfo, HistoryRecord, Job
from mulligan.stores.sqlite.eventlog import append_events
from mulligan.stores.sqlite.faults import DRIVER_ERRORS
from mulligan.stores.sqlite.history import append_records
from mulligan.stores.sqlite.hop import Transaction

UNDECODABLE = "Undecodable"

# The fields of Job in their order, and their columns; what is no column of its own comes last there.
FIELDS: tuple[str, ...] = tuple(name for name in Job.__struct_fields__ if name not in ("read_at_us", "history"))
COLUMNS: tuple[str, ...] = tuple("grp" if name == "group" else name for name in FIELDS)
# Mostly the last error stands in the record of the failure, and the job only says which. Its records are its own, and one that succeeded
# has no last error: a process of the version before leaves error_record as it was.
_LAST_ERROR = """iif(j.error_record IS NULL OR j.last_error IS NOT NULL OR j.status = 'done', j.last_error,
  (SELECT h.error FROM mulligan_history AS h WHERE h.seq = j.error_record AND h.job = j.seq))"""
_AS_JSON = {
    "last_error": f"json({_LAST_ERROR})",
    "tags": "json(j.tags)",
    "cancel_requested": "json(iif(j.cancel_requested, 'true', 'false'))",
}
JOB_JSON = f"json_group_array(json_array({', '.join(_AS_JSON.get(name, f'j.{name}') for name in COLUMNS)}, ?))"
JOB_COLUMNS = ", ".join(_LAST_ERROR if name == "last_error" else f"j.{name}" for name in COLUMNS)

# `chosen` is a JSON list of seq; the answer has their order, because the list is the outer loop.
_CHOSEN = "FROM (SELECT value AS chosen FROM json_each(?)) AS c CROSS JOIN mulligan_jobs AS j WHERE j.seq = c.chosen"
_READ_CHOSEN = f"SELECT {JOB_JSON} {_CHOSEN}"
_READ_CHOSEN_PLAIN = f"SELECT j.seq, {JOB_COLUMNS} {_CHOSEN}"

_jobs_decoder = msgspec.json.Decoder(list[Job])
_error_decoder = msgspec.json.Decoder(ErrorInfo | None)
_tags_decoder = msgspec.json.Decoder(tuple[str, ...])
_numbers_decoder = msgspec.json.Decoder(list[int])
encode = msgspec.json.Encoder().encode


class Bad(NamedTuple):
    """A row that could not be decoded, and why."""

    seq: int
    job: Job  # as well as it can be shown
    reason: str


def to_json(value: object) -> str:
    """JSON text to be stored or handed to json_each."""
    return encode(value).decode()


def numbers(text: str) -> list[int]:
    """The integers of a JSON list that SQLite made."""
    return _numbers_decoder.decode(text)


def read_text(transaction: Transaction, chosen: str) -> str | None:
    """The chosen jobs (a JSON list of seq) as one JSON text; None if SQLite cannot make one."""
    try:
        [text] = transaction.row(_READ_CHOSEN, (transaction.now_us, chosen))
    except DRIVER_ERRORS as problem:
        if isinstance(problem, sqlite3.Error) and getattr(problem, "sqlite_errorcode", None) not in (None, *_TEXT_ERRORS):
            raise
        return None
    return str(text)


_TEXT_ERRORS = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_TOOBIG)  # malformed JSON in a column; more than a text can hold


def decode_text(text: str | None) -> list[Job] | None:
    """The jobs of such a text; None if one of them cannot be decoded."""
    if text is None:
        return None
    try:
        return _jobs_decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return None


def read_jobs(transaction: Transaction, chosen: str) -> list[Job]:
    """The chosen jobs, those that cannot be decoded as well as they can be shown."""
    jobs = decode_text(read_text(transaction, chosen))
    return [row.job if isinstance(row, Bad) else row for row in read_one_by_one(transaction, chosen)] if jobs is None else jobs


def read_one_by_one(transaction: Transaction, chosen: str) -> list[Job | Bad]:
    """The chosen jobs, each decoded for itself."""
    connection = transaction.connection
    before, connection.text_factory = connection.text_factory, bytes
    try:
        rows = transaction.rows(_READ_CHOSEN_PLAIN, (chosen,))
    finally:
        connection.text_factory = before
    return [_job_of(row[0], row[1:], transaction.now_us) for row in rows]


def _job_of(seq: int, values: Sequence[Any], now_us: int) -> Job | Bad:
    fields: dict[str, Any] = {}
    reasons = []
    for name, value in zip(FIELDS, values, strict=True):
        try:
            fields[name] = msgspec.convert(_value_of(name, value), _TYPES[name])
        except (msgspec.ValidationError, msgspec.DecodeError, UnicodeError) as problem:
            reasons.append(f"column {name}: {problem}")
            fields[name] = _stand_in(name, value)
    job = Job(**fields, read_at_us=now_us)
    if not reasons:
        return job
    reason = "; ".join(reasons)
    shown = msgspec.structs.replace(job, last_error=ErrorInfo(type=UNDECODABLE, message=f"the stored row cannot be decoded: {reason}"))
    return Bad(seq, shown, reason)


_TYPES = {field.name: field.type for field in msgspec.structs.fields(Job)}
_SAFE: dict[str, Any] = {"status": "failed", "lane": LANES[0], "tags": (), "last_error": None}


def _value_of(name: str, value: Any) -> Any:
    if name == "cancel_requested":
        return bool(value)
    if not isinstance(value, bytes):
        return value
    if name == "last_error":
        return msgspec.to_builtins(_error_decoder.decode(value))
    if name == "tags":
        return _tags_decoder.decode(value)
    text = value.decode()
    if name == "group" and not is_group(text):
        raise msgspec.ValidationError("it has not the form of a group")
    return text


def _stand_in(name: str, value: Any) -> Any:
    """Something of the right type to show in place of a value that cannot be decoded."""
    if name in _SAFE:
        return _SAFE[name]
    if type(None) in get_args(_TYPES[name]):
        return None
    if _TYPES[name] is int:
        return 0
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


_QUARANTINE = """
UPDATE mulligan_jobs SET status = 'failed', run_at_us = NULL, ready = 0, finished_at_us = ?, updated_at_us = ?, last_error = ?,
  claim_id = NULL, claim_place = NULL, lease_owner = NULL, lease_expires_at_us = NULL, slots = NULL
WHERE seq = ? AND status IN ('pending', 'processing')
"""


def quarantine(transaction: Transaction, bad: Bad) -> None:
    """Sets a live row that cannot be decoded to failed, so that it is seen by people and no longer by workers."""
    now_us, job = transaction.now_us, bad.job
    error = msgspec.structs.replace(job.last_error or ErrorInfo(type=UNDECODABLE, message=bad.reason), at_us=now_us)
    if not transaction.run(_QUARANTINE, (now_us, now_us, to_json(error), bad.seq)):
        return
    record = HistoryRecord(
        generation=job.generation,
        fence=job.fence,
        attempt=job.attempts,
        outcome="undecodable",
        error=error,
        why=bad.reason,
    )
    append_records(transaction, now_us, [(bad.seq, to_json(record))])
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
    append_events(transaction, [event])


def salvage(transaction: Transaction, chosen: str) -> list[Job]:
    """The chosen jobs that can be decoded; the others are quarantined."""
    good: list[Job] = []
    for row in read_one_by_one(transaction, chosen):
        if isinstance(row, Bad):
            quarantine(transaction, row)
        else:
            good.append(row)
    return good
