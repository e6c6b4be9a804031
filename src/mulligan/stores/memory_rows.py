"""What a row of the memory store becomes: pure functions from one frozen value to the next, and why a change is refused."""

from __future__ import annotations

from msgspec.structs import replace

from mulligan.core.change import Change, Dead, Lapsed, Verdict
from mulligan.core.contract import FIND_LIMIT_MAX, Query
from mulligan.core.errors import UsageError
from mulligan.core.job import HISTORY_MAX, LIVE, Job, Status


def claimed(row: Job, claim_id: str, owner: str, now_us: int, lease_us: int) -> Job:
    """A pending row, taken. The settle_id stays: a repeat of the settlement before must still be recognised."""
    return replace(
        row,
        status="processing",
        run_at_us=None,
        fence=row.fence + 1,
        attempts=row.attempts + 1,
        claim_id=claim_id,
        lease_owner=owner,
        lease_expires_at_us=now_us + lease_us,
        updated_at_us=now_us,
    )


def is_held(row: Job, fence: int) -> bool:
    """Whether a claim of this fence still holds the row; the lease may have ended, as long as nobody took the row over."""
    return row.status == "processing" and row.fence == fence


def refusal_of(row: Job | None, change: Change, now_us: int) -> str:
    """Why the change's guard does not hold; empty if it does."""
    if row is None:
        return "missing"
    if isinstance(change.guard, Dead):
        return "" if row.status == "failed" and row.generation == change.guard.generation else "not failed"
    if not is_held(row, change.guard.fence):
        return "stale"
    if isinstance(change.guard, Lapsed) and (row.lease_expires_at_us is None or row.lease_expires_at_us > now_us):
        return "not lapsed"
    return ""


def settled(row: Job, change: Change, now_us: int) -> Job:
    """The row after a change whose guard holds."""
    requeued = isinstance(change.guard, Dead)
    status = change.status
    if status == "pending" and row.cancel_requested and not requeued:
        status = "cancelled"  # Cancel wins over every way back to pending, except an operator's.
    run_at_us = now_us + change.delay_us if status == "pending" else None
    history = row.history
    if change.record is not None:
        history = (*history, replace(change.record, ended_at_us=now_us))[-HISTORY_MAX:]
    return replace(
        row,
        status=status,
        lane=change.lane,
        run_at_us=run_at_us,
        updated_at_us=now_us,
        finished_at_us=None if status == "pending" else now_us,
        due_first_us=run_at_us if requeued and run_at_us is not None else row.due_first_us,
        due_us=row.due_us if run_at_us is None else run_at_us,
        attempts=change.attempts,
        failures=change.failures,
        crashes=change.crashes,
        snoozes=change.snoozes,
        releases=change.releases,
        generation=change.generation,
        claim_id=None,
        settle_id=change.settle_id,
        lease_owner=None,
        lease_expires_at_us=None,
        last_delay_us=change.last_delay_us,
        last_error=change.error,
        result_json=change.result_json,
        cancel_requested=row.cancel_requested and not requeued,
        history=history,
    )


def verdict_on(row: Job | None, change: Change, now_us: int, refusal: str = "") -> Verdict:
    """The answer to a change, from the row as it is now."""
    if row is None:
        return Verdict(job_id=change.job_id, applied=False, status=None, reason=refusal, at_us=now_us)
    return Verdict(
        job_id=row.id,
        applied=not refusal,
        status=row.status,
        fence=row.fence,
        run_at_us=row.run_at_us,
        reason=refusal,
        at_us=now_us,
    )


def matches(row: Job, query: Query) -> bool:
    """Whether every given field of the query fits."""
    return (
        (query.status is None or row.status == query.status)
        and (query.queue is None or row.queue == query.queue)
        and (query.task is None or row.task == query.task)
        and (query.lane is None or row.lane == query.lane)
        and (query.schedule is None or row.schedule == query.schedule)
        and (query.tag is None or query.tag in row.tags)
    )


def check_limit(limit: int) -> None:
    """UsageError unless a page may be so long."""
    if not 1 <= limit <= FIND_LIMIT_MAX:
        raise UsageError(f"limit must be between 1 and {FIND_LIMIT_MAX}, not {limit}")


def check_prunable(status: Status) -> None:
    """UsageError if jobs of this status are alive."""
    if status in LIVE:
        raise UsageError(f"only done, failed or cancelled jobs can be pruned, not {status} ones")
