"""Events: what the rest of the world sees. Made only after the store's verdict, from the change and the verdict alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from mulligan.core.change import Change, Dead, Held, Verdict
from mulligan.core.clock import SECOND_US

EventKind = Literal[
    "ENQUEUED",
    "CLAIM_START",
    "CLAIM_SUCCESS",
    "PROCESSING",
    "COMPLETED",
    "FAILED",
    "RETRY_SCHEDULED",
    "LOCK_RELEASE",
    "RELEASED",
    "SNOOZED",
    "CRASHED",
    "CANCELLED",
    "REQUEUED",
    "LEASE_LOST",
    "QUEUE_PAUSED",
    "QUEUE_RESUMED",
    "QUEUE_CHANGED",
    "BREAKER_OPENED",
    "BREAKER_HALF_OPEN",
    "BREAKER_CLOSING",
    "BREAKER_CLOSED",
    "DOWNSTREAM_HELD",
    "BUDGET_SPENT",
    "BUDGET_RECOVERED",
    "WORKER_STARTED",
    "WORKER_STOPPED",
    "STORE_DEGRADED",
    "STORE_RECOVERED",
]
EVENT_KINDS: tuple[EventKind, ...] = get_args(EventKind)
# The kinds the store's bounded log keeps, so that other processes see them too.
STORED_KINDS: frozenset[str] = frozenset(
    {
        "FAILED",
        "RETRY_SCHEDULED",
        "SNOOZED",
        "CRASHED",
        "CANCELLED",
        "REQUEUED",
        "LEASE_LOST",
        "QUEUE_PAUSED",
        "QUEUE_RESUMED",
        "QUEUE_CHANGED",
        "BREAKER_OPENED",
        "BREAKER_HALF_OPEN",
        "BREAKER_CLOSING",
        "BREAKER_CLOSED",
        "DOWNSTREAM_HELD",
        "WORKER_STARTED",
        "WORKER_STOPPED",
    }
)
EVENT_LOG_MAX = 10_000


class Event(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One thing that happened."""

    kind: EventKind
    at_us: int
    job_id: str = ""
    queue: str = ""
    task: str = ""
    worker: str = ""
    fence: int = 0
    attempt: int = 0
    ran_us: int = 0
    detail: dict[str, Any] = {}
    seq: int = 0  # its place in the store's log; 0 while it is only in this process


def events_of(change: Change, verdict: Verdict) -> list[Event]:
    """The events of one settled change, in their order; for a refused one, the lost lease."""
    row = row_of(change, verdict)
    if row is not None:
        return list(ROW_KINDS[row[0]].make(*row[1:]))
    guard = change.guard
    common: dict[str, Any] = {
        "at_us": verdict.at_us,
        "job_id": change.job_id,
        "queue": change.queue,
        "task": change.task,
        "worker": change.worker,
        "fence": verdict.fence if isinstance(guard, Dead) else guard.fence,
        "attempt": change.record.attempt if change.record else change.attempts,
        "ran_us": change.ran_us,
    }
    if not verdict.applied:
        if isinstance(guard, Held):
            detail = {"wanted": change.status, "reason": verdict.reason, "fence_now": verdict.fence}
            return [Event(kind="LEASE_LOST", detail=detail, **common)]
        return []  # another sweeper or operator was first: nothing happened here
    events = [Event(kind=kind, detail=detail, **common) for kind, detail in _steps(change, verdict)]
    if change.cause != "requeue":
        events.append(Event(kind="LOCK_RELEASE", **common))
    return events


# What most events are about, as rows of plain values: made into events only where somebody listens or looks (observe/bus). The first
# value names the kind of row, and all but it are what `make` is called with.
class RowKind(NamedTuple):
    """What a row stands for."""

    kinds: tuple[EventKind, ...]  # of its events
    make: Callable[..., Sequence[Event]]


# Its name, when, job, queue, task; of one that was claimed also worker, fence, attempt; of one that has ended how long it ran.
Row = tuple[Any, ...]
MESSAGE_CHARS_SHOWN = 200
_DELAY_US = 14  # its place in the row of a failure that is tried again
_RETRIED = frozenset({"failure", "timeout", "retry asked"})


def row_of(change: Change, verdict: Verdict) -> Row | None:
    """The row of a change that is a plain success, or a failure that is tried again; None for any other."""
    guard = change.guard
    if not verdict.applied or type(guard) is Dead:
        return None
    if change.cause == "success":
        return (
            "succeeded",
            verdict.at_us,
            change.job_id,
            change.queue,
            change.task,
            change.worker,
            guard.fence,
            change.attempts,
            change.ran_us,
        )
    return retry_row(change, guard.fence, verdict.at_us, verdict.run_at_us) if verdict.status == "pending" else None


def retry_row(change: Change, fence: int, at_us: int = 0, run_at_us: int | None = None) -> Row | None:
    """The row of a failure that is tried again, if it is one; the times may be left to whoever reads it (`stored_events_of_row`)."""
    error, record = change.error, change.record
    if change.cause not in _RETRIED or change.status != "pending" or error is None or record is None:
        return None
    return (
        "retried",
        at_us,
        change.job_id,
        change.queue,
        change.task,
        change.worker,
        fence,
        record.attempt,
        change.ran_us,
        change.cause,
        error.type,
        error.message[:MESSAGE_CHARS_SHOWN],
        error.fingerprint,
        change.why,
        change.delay_us,
        change.failures,
        change.crashes,
        run_at_us,
    )


def success_events(
    at_us: int, job_id: str, queue: str, task: str, worker: str, fence: int, attempt: int, ran_us: int
) -> tuple[Event, Event]:
    """The events of one job that succeeded."""
    about: dict[str, Any] = {"at_us": at_us, "job_id": job_id, "queue": queue, "task": task, "worker": worker, "fence": fence}
    return (
        Event(kind="COMPLETED", attempt=attempt, ran_us=ran_us, **about),
        Event(kind="LOCK_RELEASE", attempt=attempt, **about),
    )


def enqueue_event(at_us: int, job_id: str, queue: str, task: str) -> tuple[Event]:
    """The event of one job that was stored."""
    return (Event(kind="ENQUEUED", at_us=at_us, job_id=job_id, queue=queue, task=task),)


def claim_event(at_us: int, job_id: str, queue: str, task: str, worker: str, fence: int, attempt: int) -> tuple[Event]:
    """The event of one job that was claimed."""
    return (Event(kind="CLAIM_SUCCESS", at_us=at_us, job_id=job_id, queue=queue, task=task, worker=worker, fence=fence, attempt=attempt),)


def start_event(at_us: int, job_id: str, queue: str, task: str, worker: str, fence: int, attempt: int) -> tuple[Event]:
    """The event of one fresh job that starts."""
    return (Event(kind="PROCESSING", at_us=at_us, job_id=job_id, queue=queue, task=task, worker=worker, fence=fence, attempt=attempt),)


def restart_event(at_us: int, job_id: str, queue: str, task: str, worker: str, fence: int, attempt: int, due_us: int) -> tuple[Event]:
    """The event of one job that starts again, after a failure or a requeue."""
    detail = {"is_retry": True, "waited_s": max(0, at_us - due_us) / SECOND_US}
    return (
        Event(kind="PROCESSING", at_us=at_us, job_id=job_id, queue=queue, task=task, worker=worker, fence=fence, attempt=attempt,
              detail=detail),
    )  # fmt: skip


def retry_events(
    at_us: int, job_id: str, queue: str, task: str, worker: str, fence: int, attempt: int, ran_us: int,
    cause: str, error: str, message: str, fingerprint: str | None, why: str,
    delay_us: int, failures: int, crashes: int, run_at_us: int | None,
) -> tuple[Event, Event, Event]:  # fmt: skip
    """The events of one failure that is tried again."""
    failed = {"final": False, "cause": cause, "error": error, "message": message, "fingerprint": fingerprint, "why": why}
    retry = {"delay_s": delay_us / SECOND_US, "failures": failures, "crashes": crashes, "run_at_us": run_at_us, "why": why}
    # Written out, because names that are handed on as a dict cost more than the events.
    return (
        Event(kind="FAILED", at_us=at_us, job_id=job_id, queue=queue, task=task, worker=worker, fence=fence, attempt=attempt,
              ran_us=ran_us, detail=failed),
        Event(kind="RETRY_SCHEDULED", at_us=at_us, job_id=job_id, queue=queue, task=task, worker=worker, fence=fence, attempt=attempt,
              ran_us=ran_us, detail=retry),
        Event(kind="LOCK_RELEASE", at_us=at_us, job_id=job_id, queue=queue, task=task, worker=worker, fence=fence, attempt=attempt,
              ran_us=ran_us),
    )  # fmt: skip


ROW_KINDS: dict[str, RowKind] = {
    "enqueued": RowKind(("ENQUEUED",), enqueue_event),
    "claimed": RowKind(("CLAIM_SUCCESS",), claim_event),
    "started": RowKind(("PROCESSING",), start_event),
    "restarted": RowKind(("PROCESSING",), restart_event),
    "succeeded": RowKind(("COMPLETED", "LOCK_RELEASE"), success_events),
    "retried": RowKind(("FAILED", "RETRY_SCHEDULED", "LOCK_RELEASE"), retry_events),
}


def stored_events_of(change: Change, verdict: Verdict) -> list[Event]:
    """The events of one settled change that the store's log keeps."""
    return (
        []
        if change.cause == "success" and verdict.applied
        else [event for event in events_of(change, verdict) if event.kind in STORED_KINDS]
    )


STORED_OF_RETRY = 2  # events that the log keeps of one row of a failure that is tried again


def stored_events_of_row(row: Sequence[Any], at_us: int) -> list[Event]:
    """The events that the log keeps of such a row, which happened at that time."""
    name, _, *told, _ = row
    return [*ROW_KINDS[name].make(at_us, *told, at_us + row[_DELAY_US])[:STORED_OF_RETRY]]


class _Failed(msgspec.Struct, frozen=True, gc=False):
    final: bool
    cause: str
    error: str
    message: str
    fingerprint: str | None
    why: str


class _Retry(msgspec.Struct, frozen=True, gc=False):
    delay_s: float
    failures: int
    crashes: int
    run_at_us: int | None
    why: str


class StoredForm(msgspec.Struct, frozen=True, gc=False):
    """An event that is only going to be written: it has an event's fields in their order, so it is encoded to the same text."""

    kind: EventKind
    at_us: int
    job_id: str
    queue: str
    task: str
    worker: str
    fence: int
    attempt: int
    ran_us: int
    detail: _Failed | _Retry
    seq: int = 0


def stored_forms_of(change: Change, verdict: Verdict) -> Sequence[Event | StoredForm]:
    """The same as stored_events_of, for whoever only encodes them: a failure that is tried again, as most are, makes no event objects."""
    row = row_of(change, verdict)
    if row is None:
        return stored_events_of(change, verdict)
    return _retry_forms(*row[1:]) if row[0] == "retried" else ()


def _retry_forms(
    at_us: int, job_id: str, queue: str, task: str, worker: str, fence: int, attempt: int, ran_us: int,
    cause: str, error: str, message: str, fingerprint: str | None, why: str,
    delay_us: int, failures: int, crashes: int, run_at_us: int | None,
) -> tuple[StoredForm, StoredForm]:  # fmt: skip
    failed = _Failed(False, cause, error, message, fingerprint, why)
    retry = _Retry(delay_us / SECOND_US, failures, crashes, run_at_us, why)
    return (
        StoredForm("FAILED", at_us, job_id, queue, task, worker, fence, attempt, ran_us, failed),
        StoredForm("RETRY_SCHEDULED", at_us, job_id, queue, task, worker, fence, attempt, ran_us, retry),
    )


def _steps(change: Change, verdict: Verdict) -> list[tuple[EventKind, dict[str, Any]]]:
    """What a change that is not a success consists of, one event kind each."""
    delay_s = change.delay_us / SECOND_US
    why = {"why": change.why}
    if change.cause == "requeue":
        return [("REQUEUED", {"generation": change.generation, "by": change.worker, **why})]
    if verdict.status == "cancelled":
        return [("CANCELLED", why)]
    if change.cause == "release":
        return [("RELEASED", {"delay_s": delay_s, **why})]
    if change.cause == "snooze" and change.status == "pending":
        return [("SNOOZED", {"delay_s": delay_s, **why})]
    first: EventKind = "CRASHED" if change.cause == "crash" else "FAILED"
    error = change.error
    detail: dict[str, Any] = {
        "final": change.status == "failed",
        "cause": change.cause,
        "error": "" if error is None else error.type,
        "message": "" if error is None else error.message[:MESSAGE_CHARS_SHOWN],
        "fingerprint": None if error is None else error.fingerprint,
        **why,
    }
    steps: list[tuple[EventKind, dict[str, Any]]] = [(first, detail)]
    if change.status == "pending":
        retry = {"delay_s": delay_s, "failures": change.failures, "crashes": change.crashes, "run_at_us": verdict.run_at_us, **why}
        steps.append(("RETRY_SCHEDULED", retry))
    elif first == "CRASHED":
        steps.append(("FAILED", detail))
    return steps
