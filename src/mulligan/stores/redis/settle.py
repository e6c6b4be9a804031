"""Settling: one script call for a batch.

Successes of held jobs take the shortest way (lua/finish.lua), other outcomes of theirs a short one (lua/whole.lua). If one of them does not
end as planned, because its guard does not hold or a cancel wins, nothing is written, and the batch is judged change by change, as takeovers
and requeues are (lua/settle.lua).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from mulligan.core.change import Change, Dead, Held, Verdict, are_successes, held_fences
from mulligan.stores.redis.eventlog import entry_of, events_if
from mulligan.stores.redis.layout import (
    NO_EXTRA,
    OWN_EXTRA,
    RECORDED,
    blob,
    counts_of,
    encode,
    extra_blob,
    record_blobs,
    record_rest,
    run_of,
)
from mulligan.stores.redis.server import Server

PORTION = 500  # changes in one script; it blocks the server while it runs
PORTION_CHARS = 8 * 1024 * 1024


async def settle(server: Server, changes: Sequence[Change]) -> list[Verdict]:
    """Applies each change whose guard holds, in order; the others are refused, one by one."""
    verdicts: list[Verdict] = []
    for portion in portions(changes):
        verdicts += await _at_once(server, portion) or await _judge(server, portion)
    return verdicts


def portions(changes: Sequence[Change]) -> Iterator[Sequence[Change]]:
    """The changes in their order, in lists that are bounded in length and in the size of their results."""
    start = size = 0
    for at, change in enumerate(changes):
        grows_by = len(change.result_json or "")
        if at - start >= PORTION or (size and size + grows_by > PORTION_CHARS):
            yield changes[start:at]
            start, size = at, 0
        size += grows_by
    if start < len(changes):
        yield changes[start:]


async def _at_once(server: Server, changes: Sequence[Change]) -> list[Verdict]:
    """The verdicts on a batch of held jobs that all ended as planned; none, and nothing written, if one of them did not."""
    fences = held_fences(changes)
    if not fences:
        return []
    if are_successes(changes):
        answer = await server.run("finish", encode(_finished(changes, fences)))
    else:
        answer = await server.run("whole", encode(_whole(changes, fences)), *entry_of(changes))
    if not answer.values[0]:
        return []
    now_us = answer.now_us
    return [
        Verdict(
            job_id=change.job_id,
            applied=True,
            status=change.status,
            fence=fence,
            run_at_us=now_us + change.delay_us if change.status == "pending" else None,
            at_us=now_us,
        )
        for change, fence in zip(changes, fences, strict=True)
    ]


async def _judge(server: Server, changes: Sequence[Change]) -> list[Verdict]:
    answer = await server.run("settle", encode([_row_of(change) for change in changes]))
    flat = answer.values[0]
    exceptions = {flat[i] - 1: flat[i + 1 : i + 6] for i in range(0, len(flat), 6)}
    return [_verdict(change, exceptions.get(place), answer.now_us) for place, change in enumerate(changes)]


def _finished(changes: Sequence[Change], fences: Sequence[int]) -> list[Any]:
    """Successes, as finish.lua takes them."""
    rows: list[Any] = []
    for change, fence in zip(changes, fences, strict=True):
        extra = extra_blob(change.error, change.result_json)
        rows += (change.job_id, fence, change.attempts, _part(change, NO_EXTRA if extra is False else OWN_EXTRA), extra)
    return rows


def _whole(changes: Sequence[Change], fences: Sequence[int]) -> tuple[Any, ...]:
    """Any outcomes, as whole.lua takes them: errors that are the same, as those of a storm mostly are, go once."""
    rows: list[Any] = []
    places: dict[bytes, int] = {}
    for change, fence in zip(changes, fences, strict=True):
        extra, where = _extra(change)
        place: int | bool = False
        rest: msgspec.Raw | bool = False
        if change.record is not None:
            place = places.setdefault(encode(change.record.error), len(places) + 1)
            rest = record_rest(change.record)
        rows += (change.job_id, fence, change.attempts, change.status, change.delay_us, _part(change, where), extra, place, rest)
    return [blob(error) for error in places], rows


def _part(change: Change, extra: int) -> msgspec.Raw:
    """The part of a state that a settlement writes, as a value."""
    counts = counts_of(change.failures, change.crashes, change.snoozes, change.releases, change.generation)
    return blob(run_of((change.lane, change.generation, counts, change.settle_id, change.last_delay_us, extra)))


def _extra(change: Change) -> tuple[msgspec.Raw | bool, int]:
    """The last error and the result as a value, if they need a key of their own, and where they are: mostly the error is the record's."""
    error, record = change.error, change.record
    if error is not None and record is not None and record.error is error and change.result_json is None:
        return False, RECORDED
    extra = extra_blob(error, change.result_json)
    return extra, NO_EXTRA if extra is False else OWN_EXTRA


def _row_of(change: Change) -> tuple[Any, ...]:
    guard = change.guard
    kind, value = ("dead", guard.generation) if isinstance(guard, Dead) else ("held" if isinstance(guard, Held) else "lapsed", guard.fence)
    return (
        change.job_id,
        kind,
        value,
        change.settle_id,
        change.status,
        change.lane,
        change.attempts,
        change.generation,
        counts_of(change.failures, change.crashes, change.snoozes, change.releases, change.generation),
        False if change.last_delay_us is None else change.last_delay_us,
        change.delay_us,
        *_extra(change),
        False if change.record is None else record_blobs(change.record),
        [*map(blob, events_if(change, change.status))],
        [*map(blob, events_if(change, "cancelled"))] if change.status == "pending" else False,
        blob(events_if(change, None)[0]) if kind == "held" else False,
    )


def _verdict(change: Change, exception: Sequence[Any] | None, now_us: int) -> Verdict:
    if exception is None:
        fence = 0 if isinstance(change.guard, Dead) else change.guard.fence
        run_at_us = now_us + change.delay_us if change.status == "pending" else None
        return Verdict(job_id=change.job_id, applied=True, status=change.status, fence=fence, run_at_us=run_at_us, at_us=now_us)
    status, fence, run_at_us, reason, applied = exception
    return Verdict(
        job_id=change.job_id,
        applied=bool(applied),
        status=status.decode() or None,
        fence=fence,
        run_at_us=None if run_at_us < 0 else run_at_us,
        reason=reason.decode(),
        at_us=now_us,
    )
