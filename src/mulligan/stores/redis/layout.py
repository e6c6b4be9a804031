"""How a job lies in Redis, and back.

A job is up to five keys. `body` never changes: three runs of values (what comes first in a Job, its limits, what comes last). `state` is
what claims and settlements rewrite; `extra` holds the last error and the result, and exists only where there is one; `history` is a list,
`receipts` a hash (lua/receipt.lua). All are MessagePack without an outer array, so that the scripts make a Job's array by putting the
runs one behind the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from mulligan.core.job import HistoryRecord, Job

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
    has_extra: bool
    queue: str
    priority: int
    created_at_us: int
    due_first_us: int
    due_us: int
    unique_key: str | None
    cancel_requested: bool
    group: str | None
    concurrency_key: str | None


STATE_WIDTH = len(State.__struct_fields__)
_history_decoder = msgspec.msgpack.Decoder(tuple[int, str])
_record_decoder = msgspec.json.Decoder(HistoryRecord)


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
        "has_extra": job.last_error is not None or job.result_json is not None,
    }
    return run_of([special[name] if name in special else getattr(job, name) for name in State.__struct_fields__])


def record_of(text: bytes) -> HistoryRecord:
    """A history record; its end is the store's, written beside it."""
    try:
        ended_at_us, record = _history_decoder.decode(array_of(text, 2))
        return msgspec.structs.replace(_record_decoder.decode(record), ended_at_us=ended_at_us)
    except (msgspec.DecodeError, UnicodeError) as problem:
        return HistoryRecord(generation=0, fence=0, attempt=0, outcome="undecodable", why=f"the stored record cannot be decoded: {problem}")
