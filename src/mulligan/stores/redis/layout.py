"""How a job lies in Redis, and back.

A job is up to five keys. `body` never changes: three runs of values (what comes first in a Job, its limits, what comes last). `state` is
what claims and settlements rewrite; `history` is a list with three entries for each record (when it ended, its error, the rest of it);
`extra` holds the last error and the result, where there is one and it is not the error of the newest record; `receipts` is a hash
(lua/receipt.lua). All are MessagePack without an outer array, so that the scripts make a Job's array by putting the runs one behind the
other.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from mulligan.core.job import ErrorInfo, HistoryRecord, Job

encode = msgspec.msgpack.Encoder().encode
NOTHING = b"\xc0\xc0"  # no error, no result
FIELDS: tuple[str, ...] = Job.__struct_fields__[:-1]  # all but the history
HEAD = FIELDS[:7]
LIMITS = ("timeout_us", "max_age_us")
TAIL = FIELDS[FIELDS.index("schedule") : FIELDS.index("cancel_requested")]
EXTRA = ("last_error", "result_json")
COUNTS = ("failures", "crashes", "snoozes", "releases", "generation")


class State(msgspec.Struct, array_like=True, frozen=True):
    """The state of a job, in the order of its values; see lua/rows.lua."""

    status: str
    fence: int
    attempts: int
    run_at_us: int | None
    updated_at_us: int
    finished_at_us: int | None
    claim_id: str | None
    claim_place: int | None
    lease_owner: str | None
    lease_expires_at_us: int | None
    slots: str | None  # what it was claimed under (core/limits.slots_text), while it is processing
    lane: str
    generation: int
    counts: msgspec.Raw
    settle_id: str | None
    last_delay_us: int | None
    extra: int  # where its last error and its result are, as below
    due_us: int
    queue: str
    priority: int
    created_at_us: int
    due_first_us: int
    unique_key: str | None
    cancel_requested: bool
    group: str | None
    concurrency_key: str | None
    salt: int | None  # says nothing: it only makes the texts of a batch end differently (lua/rows.lua)


STATE_WIDTH = len(State.__struct_fields__)
NO_EXTRA, OWN_EXTRA, RECORDED = 0, 1, 2  # there are none; in a key of their own; the error is that of the newest record


class _Record(msgspec.Struct, array_like=True, frozen=True):
    """A history record, in the order of its values. Its last entry ends with a time, for the reason told in lua/rows.lua."""

    ended_at_us: int
    error: ErrorInfo | None
    generation: int
    fence: int
    attempt: int
    outcome: str
    worker: str
    delay_us: int | None
    why: str
    started_at_us: int | None


RECORD_ENTRIES = 3
_RECORD_WIDTH = len(_Record.__struct_fields__)
_record_decoder = msgspec.msgpack.Decoder(_Record)


def run_of(values: Sequence[Any]) -> bytes:
    """Values one behind the other."""
    return encode(values)[1 if len(values) < 16 else 3 :]


def array_of(run: bytes, width: int) -> bytes:
    """A run of values as an array."""
    return b"\xdd" + width.to_bytes(4, "big") + run


def blob(run: bytes) -> msgspec.Raw:
    """Bytes as a value. MessagePack has a type for them, but Lua's decoder does not know it; its texts are bytes of any kind."""
    return msgspec.Raw(packed_blob(run))


def packed_blob(run: bytes) -> bytes:
    """The same as a run of its own."""
    size = len(run)
    return (b"\xd9" + size.to_bytes(1, "big") if size < 0x100 else b"\xdb" + size.to_bytes(4, "big")) + run


def blob_in(value: bytes | msgspec.Raw) -> bytes:
    """The bytes inside a value that is a text of any kind."""
    value = bytes(value)
    if 0xA0 <= value[0] <= 0xBF:
        return value[1:]
    if value[0] not in _BLOB_HEADS:
        raise msgspec.DecodeError("a text was expected")
    return value[_BLOB_HEADS[value[0]] :]


_BLOB_HEADS = {0xD9: 2, 0xDA: 3, 0xDB: 5}


@lru_cache(maxsize=1024)
def counts_of(failures: int, crashes: int, snoozes: int, releases: int, generation: int) -> msgspec.Raw:
    """The counters as a blob; nearly always one of a few."""
    return blob(run_of((failures, crashes, snoozes, releases, generation)))


def extra_of(last_error: Any, result_json: str | None) -> bytes | None:
    """The last error and the result as a run; None if there is neither."""
    return None if last_error is None and result_json is None else run_of((last_error, result_json))


def extra_blob(last_error: Any, result_json: str | None) -> msgspec.Raw | bool:
    """The same as a value of a script's argument; False if there is neither."""
    run = extra_of(last_error, result_json)
    return False if run is None else blob(run)


def body_of(job: Job) -> bytes:
    """The body of a stored job."""
    return run_of(tuple(blob(run_of([getattr(job, name) for name in names])) for names in (HEAD, LIMITS, TAIL)))


def state_of(job: Job) -> bytes:
    """The state of a stored job."""
    counts = counts_of(job.failures, job.crashes, job.snoozes, job.releases, job.generation)
    special: dict[str, Any] = {
        "counts": counts,
        "claim_place": None,
        "slots": None,
        "salt": None,
        "extra": NO_EXTRA if job.last_error is None and job.result_json is None else OWN_EXTRA,
    }
    return run_of([special[name] if name in special else getattr(job, name) for name in State.__struct_fields__])


def record_blobs(record: HistoryRecord) -> tuple[msgspec.Raw, msgspec.Raw]:
    """A history record's error and the rest of it, as values; its end is the store's, written before them."""
    return blob(encode(record.error)), record_rest(record)


def record_rest(record: HistoryRecord) -> msgspec.Raw:
    """All of a record but its end and its error."""
    rest = (record.generation, record.fence, record.attempt, record.outcome, record.worker, record.delay_us, record.why)
    return blob(run_of((*rest, record.started_at_us)))


def record_of(entries: Sequence[bytes]) -> HistoryRecord:
    """The record of its three entries."""
    try:
        record = _record_decoder.decode(array_of(b"".join(entries), _RECORD_WIDTH))
    except (msgspec.DecodeError, UnicodeError) as problem:
        return HistoryRecord(generation=0, fence=0, attempt=0, outcome="undecodable", why=f"the stored record cannot be decoded: {problem}")
    return HistoryRecord(**msgspec.structs.asdict(record))


def records_of(entries: Sequence[bytes]) -> tuple[HistoryRecord, ...]:
    """The records of a history's list."""
    return tuple(record_of(entries[place : place + RECORD_ENTRIES]) for place in range(0, len(entries), RECORD_ENTRIES))
