"""Jobs out of the table. The driver's rows become Job values in one conversion.

A row that cannot be decoded (edited by hand, damaged) must not keep the others from being read. Then the rows are taken one by one:
- a claim or a sweep that meets such a row sets it to failed, with an error of type Undecodable that says why (quarantine);
- get and find show it as well as it can be shown, with that error as its last one; they change nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, get_args

import msgspec

from mulligan.core.events import EVENT_LOG_MAX, Event
from mulligan.core.groups import is_group
from mulligan.core.job import HISTORY_MAX, LANES, ErrorInfo, HistoryRecord, Job
from mulligan.stores.postgres.database import Database, Transaction
from mulligan.stores.postgres.entries import entries_of

UNDECODABLE = "Undecodable"

# The columns in the order of Job's fields; what is no column of its own comes last there.
FIELDS: tuple[str, ...] = tuple(name for name in Job.__struct_fields__ if name not in ("read_at_us", "history"))
COLUMNS: tuple[str, ...] = tuple("job_group" if name == "group" else name for name in FIELDS)  # GROUP is a word of SQL
WIDTH = len(COLUMNS)
_ERROR, _TAGS, _GROUP = FIELDS.index("last_error"), FIELDS.index("tags"), FIELDS.index("group")

_error_decoder = msgspec.json.Decoder(ErrorInfo | None)
_tags_decoder = msgspec.json.Decoder(tuple[str, ...])
encode = msgspec.json.Encoder().encode


class Bad(NamedTuple):
    """A row that could not be decoded, and why."""

    job: Job  # as well as it can be shown
    reason: str


def to_json(value: object) -> str:
    """JSON text to be stored."""
    return encode(value).decode()


def decode(rows: Sequence[Any], now_us: int) -> list[Job] | None:
    """The jobs of rows that begin with COLUMNS; None if one of them cannot be decoded."""
    values = []
    try:
        for row in rows:
            value = [*row[:WIDTH], now_us]
            if value[_ERROR] is not None:
                value[_ERROR] = _error_decoder.decode(value[_ERROR])
            value[_TAGS] = () if value[_TAGS] == "[]" else _tags_decoder.decode(value[_TAGS])
            if value[_GROUP] is not None:
                _checked_group(value[_GROUP])
            values.append(value)
        return msgspec.convert(values, list[Job])
    except (msgspec.ValidationError, msgspec.DecodeError):
        return None


def decode_shown(rows: Sequence[Any], now_us: int) -> list[Job]:
    """The jobs, those that cannot be decoded as well as they can be shown."""
    jobs = decode(rows, now_us)
    return [row.job if isinstance(row, Bad) else row for row in decode_each(rows, now_us)] if jobs is None else jobs


def decode_each(rows: Sequence[Any], now_us: int) -> list[Job | Bad]:
    """The jobs, each decoded for itself."""
    return [_job_of(row[:WIDTH], now_us) for row in rows]


def _job_of(values: Sequence[Any], now_us: int) -> Job | Bad:
    fields: dict[str, Any] = {}
    reasons = []
    for name, value in zip(FIELDS, values, strict=True):
        try:
            fields[name] = msgspec.convert(_value_of(name, value), _TYPES[name])
        except (msgspec.ValidationError, msgspec.DecodeError) as problem:
            reasons.append(f"column {name}: {problem}")
            fields[name] = _stand_in(name, value)
    job = Job(**fields, read_at_us=now_us)
    if not reasons:
        return job
    reason = "; ".join(reasons)
    shown = msgspec.structs.replace(job, last_error=ErrorInfo(type=UNDECODABLE, message=f"the stored row cannot be decoded: {reason}"))
    return Bad(shown, reason)


_TYPES = {field.name: field.type for field in msgspec.structs.fields(Job)}
_SAFE: dict[str, Any] = {"status": "failed", "lane": LANES[0], "tags": (), "last_error": None}


def _value_of(name: str, value: Any) -> Any:
    if name == "last_error" and value is not None:
        return msgspec.to_builtins(_error_decoder.decode(value))
    if name == "tags":
        return _tags_decoder.decode(value)
    return _checked_group(value) if name == "group" and value is not None else value


def _checked_group(text: str) -> str:
    if not is_group(text):
        raise msgspec.ValidationError("Expected a group of four parts")
    return text


def _stand_in(name: str, value: Any) -> Any:
    """Something of the right type to show in place of a value that cannot be decoded."""
    if name in _SAFE:
        return _SAFE[name]
    if type(None) in get_args(_TYPES[name]):
        return None
    return 0 if _TYPES[name] is int else str(value)


_QUARANTINE = """
WITH bad AS (
  UPDATE {s}.jobs SET status = 'failed', run_at_us = NULL, ready = false, finished_at_us = $2, updated_at_us = $2, last_error = $3,
    claim_id = NULL, claim_place = NULL, lease_owner = NULL, lease_expires_at_us = NULL, slots = NULL
  WHERE id = $1 AND status IN ('pending', 'processing') RETURNING queue
)
INSERT INTO {s}.tallies (queue, status, jobs) SELECT queue, 'failed', 1 FROM bad RETURNING 1
"""
RECORD = f"SELECT {{s}}.record(NULL, $1, $2, $3, {HISTORY_MAX}, $4, $5, {EVENT_LOG_MAX})"


async def salvage(database: Database, rows: Sequence[Any], now_us: int) -> list[Job]:
    """The jobs that can be decoded; the others are quarantined."""
    each = decode_each(rows, now_us)
    for row in each:
        if isinstance(row, Bad):
            await _quarantine(database, row, now_us)
    return [row for row in each if not isinstance(row, Bad)]


async def _quarantine(database: Database, bad: Bad, now_us: int) -> None:
    """Sets a live row that cannot be decoded to failed, so that it is seen by people and no longer by workers."""
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

    async def write(transaction: Transaction) -> None:
        if await transaction.rows(_QUARANTINE, job.id, now_us, to_json(error)):
            await transaction.rows(RECORD, [job.id], [to_json(record)], [], *entries_of([event]))

    await database.within(write)
