"""A Change is the whole answer of the policy for one job: storage applies it in one guarded, atomic write.

The values that are made for every job are `gc=False`, here and in the other modules of core: they hold plain values only and cannot be
part of a cycle, and tens of thousands of them a second would keep the garbage collector busy looking for one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, final

import msgspec

from mulligan.core.codec import MESSAGE_CHARS_MAX, PAYLOAD_BYTES_MAX, TRACEBACK_CHARS_MAX
from mulligan.core.errors import StoreRejected
from mulligan.core.job import ErrorInfo, HistoryRecord, Lane, Status

Cause = Literal[
    "success",
    "failure",
    "timeout",
    "retry asked",
    "snooze",
    "release",
    "cancel",
    "crash",
    "expired",
    "unstorable",
    "requeue",
]


class Held(msgspec.Struct, frozen=True, gc=False, tag=True):
    """Applies only to a processing job under this fence, even if its lease time has passed."""

    fence: int


class Lapsed(msgspec.Struct, frozen=True, gc=False, tag=True):
    """Applies only to a processing job under this fence whose lease has ended on the store's clock."""

    fence: int


@final
class Dead(msgspec.Struct, frozen=True, gc=False, tag=True):
    """Applies only to a failed job of this generation."""

    generation: int


Guard = Held | Lapsed | Dead


class Change(msgspec.Struct, frozen=True, gc=False):
    """The full field set of a job's next state, and the guard under which it may be written.

    Where one is made for every job its first fields are given by their places: to find seventeen names takes six times as long. The same
    goes for the other values of core that are made for every job or every failure.

    Counters are absolute: the guard makes sure that they are still the ones the decision was made from.
    Times are not in it. The store writes run_at as its own now plus `delay_us` (or `run_at_us` where an absolute time was asked for).
    """

    job_id: str
    queue: str
    task: str
    guard: Guard
    settle_id: str  # made by the caller; a repeat with an equal id answers "applied" again
    cause: Cause
    status: Status
    lane: Lane
    attempts: int
    failures: int
    crashes: int
    snoozes: int
    releases: int
    generation: int
    delay_us: int = 0  # used when status is pending
    last_delay_us: int | None = None  # the backoff chosen last, which decorrelated jitter builds on
    error: ErrorInfo | None = None
    result_json: str | None = None
    record: HistoryRecord | None = None
    worker: str = ""
    why: str = ""
    ran_us: int = 0  # how long the handler ran, for the execution timer


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """The store's answer to one change. A refusal is data, not an exception."""

    job_id: str
    applied: bool
    status: Status | None  # the status the job has now; None: no such job
    fence: int = 0  # the fence the job has now
    run_at_us: int | None = None  # set when it is pending now
    reason: str = ""  # why it was refused: "missing", "stale", "not lapsed", "not failed"
    at_us: int = 0  # the store's time of this answer


class Grip(msgspec.Struct, frozen=True, gc=False):
    """What a holder shows to prove that a claim is still its own."""

    job_id: str
    fence: int


def held_fences(changes: Sequence[Change]) -> list[int]:
    """The fences under which the jobs of a batch are held, if it is about nothing but held jobs, and each of them once. Otherwise none."""
    fences = [change.guard.fence for change in changes if type(change.guard) is Held]
    return fences if len(fences) == len(changes) == len({change.job_id for change in changes}) else []


def are_successes(changes: Sequence[Change]) -> bool:
    """Whether a batch is nothing but successes: they leave no record and no stored event."""
    for change in changes:  # noqa: SIM110 - all(...) would be a call for each of them
        if change.cause != "success" or change.status != "done" or change.record is not None:
            return False
    return True


def all_equal(values: Iterable[object]) -> bool:
    """Whether values are the same, or there are none. To compare them with the first takes less than to find the hash of each."""
    found = list(values)
    return not found or found.count(found[0]) == len(found)


def check_all_writable(changes: Iterable[Change]) -> None:
    """Raises StoreRejected for a change with a text that not every store can keep. Every store calls it before it settles."""
    for change in changes:
        if change.result_json is not None or change.error is not None or change.record is not None or change.why:
            check_writable(change)


def check_writable(change: Change) -> None:
    """The same for one change."""
    if change.result_json is not None:
        _check_text(change.result_json, PAYLOAD_BYTES_MAX, "result", change)
    error = change.error
    if error is not None:
        # Mostly one look at all its texts is enough: together they are no longer than the shortest of them may be.
        whole = f"{change.why}{error.message}{error.traceback}{error.type}{error.code}"
        if len(whole) > MESSAGE_CHARS_MAX or "\0" in whole or not whole.isascii():
            _check_error(error, change)
            _check_text(change.why, 2 * MESSAGE_CHARS_MAX, "reason", change)
    elif change.why:
        _check_text(change.why, 2 * MESSAGE_CHARS_MAX, "reason", change)
    if change.record is not None and change.record.error is not None and change.record.error is not error:
        _check_error(change.record.error, change)


def _check_error(error: ErrorInfo, change: Change) -> None:
    _check_text(error.message, 2 * MESSAGE_CHARS_MAX, "error message", change)
    if error.traceback is not None:
        _check_text(error.traceback, 2 * TRACEBACK_CHARS_MAX, "traceback", change)
    _check_text(error.type + (error.code or ""), MESSAGE_CHARS_MAX, "error type or code", change)


def _check_text(text: str, chars_max: int, what: str, change: Change) -> None:
    if len(text) > chars_max:
        raise StoreRejected(f"job {change.job_id}: the {what} has {len(text):,} characters, the limit is {chars_max:,}")
    if "\0" in text:
        raise StoreRejected(f"job {change.job_id}: the {what} holds a NUL character")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise StoreRejected(f"job {change.job_id}: the {what} holds a lone surrogate") from None
