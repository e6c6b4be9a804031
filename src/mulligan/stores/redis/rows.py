"""Jobs out of their keys. What cannot be decoded (edited by hand, damaged) must not keep the others from being read:

- a claim or a sweep that meets such a job sets it to failed, with an error of type Undecodable that says why (quarantine);
- get and find show it as well as it can be shown, with that error as its last one; they change nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, get_args

import msgspec

from mulligan.core.events import Event
from mulligan.core.job import LANES, STATUSES, ErrorInfo, HistoryRecord, Job
from mulligan.stores.redis.layout import (
    COUNTS,
    EXTRA,
    FIELDS,
    HEAD,
    LIMITS,
    NOTHING,
    STATE_WIDTH,
    TAIL,
    State,
    array_of,
    blob,
    blob_in,
    encode,
    record_blobs,
    records_of,
    run_of,
    state_of,
)
from mulligan.stores.redis.server import Server

UNDECODABLE = "Undecodable"

_state_decoder = msgspec.msgpack.Decoder(State)
_body_decoder = msgspec.msgpack.Decoder(tuple[msgspec.Raw, msgspec.Raw, msgspec.Raw])
_job_decoder = msgspec.msgpack.Decoder(Job)
_jobs_decoder = msgspec.msgpack.Decoder(list[Job])
_raws_decoder = msgspec.msgpack.Decoder(list[msgspec.Raw])
_PROBLEMS = (msgspec.DecodeError, UnicodeError, RecursionError, IndexError)


class Raw(NamedTuple):
    """A job as its keys hold it; empty where there is no such key."""

    id: bytes
    state: bytes
    body: bytes
    extra: bytes
    history: Sequence[bytes] = ()


class Bad(NamedTuple):
    """A job that could not be decoded, and why."""

    raw: Raw
    job: Job  # as well as it can be shown
    reason: str


def raws_of(found: Sequence[Sequence[bytes]]) -> list[Raw]:
    """The jobs of a script's answer."""
    return [Raw(one[0], one[1], one[2], one[3], one[4:]) for one in found]


def decode_many(text: bytes, jobs: int) -> list[Job] | None:
    """The jobs a claim answered; None if one of them cannot be decoded."""
    try:
        return _jobs_decoder.decode(array_of(text, jobs))
    except _PROBLEMS:
        return None


def shown(raw: Raw, now_us: int) -> Job:
    """The job, as well as it can be shown."""
    job = decoded(raw, now_us)
    return job.job if isinstance(job, Bad) else job


def decoded(raw: Raw, now_us: int) -> Job | Bad:
    """The job, or why it cannot be decoded."""
    try:
        state = _state_decoder.decode(array_of(raw.state, STATE_WIDTH))
        head, limits, tail = map(blob_in, _body_decoder.decode(array_of(raw.body, 3)))
        runs = (
            head,
            run_of((state.lane, state.status, state.run_at_us, state.created_at_us, state.updated_at_us, state.finished_at_us)),
            run_of((state.due_first_us, state.due_us, state.attempts)),
            blob_in(state.counts),
            limits,
            run_of((state.fence, state.claim_id, state.settle_id, state.lease_owner, state.lease_expires_at_us, state.last_delay_us)),
            raw.extra or NOTHING,
            tail,
            run_of((state.cancel_requested, now_us)),
        )
        job = _job_decoder.decode(array_of(b"".join(runs), len(FIELDS)))
    except _PROBLEMS:
        return _piece_by_piece(raw, now_us)
    return msgspec.structs.replace(job, history=records_of(raw.history)) if raw.history else job


def _piece_by_piece(raw: Raw, now_us: int) -> Bad:
    """Every value by itself, with something to show in place of those that cannot be decoded."""
    values: dict[str, bytes] = dict(zip(State.__struct_fields__, _values(raw.state, STATE_WIDTH), strict=False))
    values |= dict(zip(COUNTS, _values(_inside(values.get("counts", b"")), len(COUNTS)), strict=False))
    for names, part in zip((HEAD, LIMITS, TAIL), _values(raw.body, 3), strict=False):
        values |= dict(zip(names, _values(_inside(part), len(names)), strict=False))
    values |= dict(zip(EXTRA, _values(raw.extra or NOTHING, 2), strict=False))
    history = records_of(raw.history)
    fields: dict[str, Any] = {}
    reasons = []
    for name in FIELDS[:-1]:
        try:
            fields[name] = msgspec.msgpack.decode(values[name], type=_TYPES[name])
        except KeyError:
            reasons.append(f"{name}: missing")
            fields[name] = _stand_in(name, history)
        except _PROBLEMS as problem:
            reasons.append(f"{name}: {problem}")
            fields[name] = _stand_in(name, history)
    fields["id"] = raw.id.decode("utf-8", "replace")  # that of the key, whatever the body says
    reason = "; ".join(reasons)[:2_000] or "its parts do not fit together"
    error = ErrorInfo(type=UNDECODABLE, message=f"the stored job cannot be decoded: {reason}")
    return Bad(raw, Job(**(fields | {"last_error": error}), read_at_us=now_us, history=history), reason)


def _values(run: bytes, width: int) -> list[bytes]:
    """The values of a run, each as it is encoded; none if it cannot be taken apart."""
    try:
        return [bytes(value) for value in _raws_decoder.decode(array_of(run, width))]
    except _PROBLEMS:
        return []


def _inside(value: bytes) -> bytes:
    """The bytes inside a value; none if it is no text."""
    try:
        return blob_in(value)
    except _PROBLEMS:
        return b""


_TYPES = {field.name: field.type for field in msgspec.structs.fields(Job)}
_SAFE: dict[str, Any] = {"status": "failed", "lane": LANES[0], "tags": (), "last_error": None, "cancel_requested": False}


def _stand_in(name: str, history: Sequence[HistoryRecord]) -> Any:
    """Something of the right type to show in place of a value that cannot be decoded."""
    if name == "fence":
        # Not 0, as if nobody had ever held it: the next holder would not look for what those before have done (worker/steps.py).
        return max((record.fence for record in history), default=0) + 1
    if name in _SAFE:
        return _SAFE[name]
    if type(None) in get_args(_TYPES[name]):
        return None
    return 0 if _TYPES[name] is int else ""


async def read(server: Server, ids: Sequence[str | bytes]) -> tuple[int, list[Raw]]:
    """The jobs there are of these ids, with their histories."""
    wanted = [job_id if isinstance(job_id, str) else blob(job_id) for job_id in ids]
    answer = await server.run("read", encode(wanted))
    return answer.now_us, raws_of(answer.values[0])


async def salvage(server: Server, raws: Sequence[Raw], now_us: int) -> list[Job]:
    """The jobs that can be decoded; the others are quarantined."""
    good: list[Job] = []
    for raw in raws:
        job = decoded(raw, now_us)
        if isinstance(job, Bad):
            await quarantine(server, job, now_us)
        else:
            good.append(job)
    return good


async def quarantine(server: Server, bad: Bad, now_us: int) -> None:
    """Sets a job that cannot be decoded to failed, so that it is seen by people and no longer by workers."""
    job, error = bad.job, bad.job.last_error
    assert error is not None
    error = msgspec.structs.replace(error, at_us=now_us)
    failed = msgspec.structs.replace(
        job,
        status=STATUSES[3],
        run_at_us=None,
        finished_at_us=now_us,
        claim_id=None,
        lease_owner=None,
        lease_expires_at_us=None,
        last_error=error,
        result_json=None,
    )
    record = HistoryRecord(
        generation=job.generation, fence=job.fence, attempt=job.attempts, outcome="undecodable", error=error, why=bad.reason
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
    raw = bad.raw
    texts = (run_of((error, None)), *map(blob_in, record_blobs(record)), encode(event))
    await server.run("quarantine", raw.id, raw.state, raw.body, raw.extra, state_of(failed), *texts)
