"""The job: one unit of stored work, as a frozen value. Values cross the storage line, never live objects."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec

from mulligan.core.clock import SECOND_US, us_to_datetime
from mulligan.core.codec import decode_payload, decode_result
from mulligan.core.groups import DOWNSTREAM, part_of

Status = Literal["pending", "processing", "done", "failed", "cancelled"]
Lane = Literal["fresh", "retry"]
STATUSES: tuple[Status, ...] = ("pending", "processing", "done", "failed", "cancelled")
LIVE: frozenset[str] = frozenset({"pending", "processing"})
LANES: tuple[Lane, ...] = ("fresh", "retry")
PRIORITIES = (2, 1, 0)  # urgent, raised, normal: the order in which they are served
HISTORY_MAX = 50


class ErrorInfo(msgspec.Struct, frozen=True, gc=False):
    """One error as text: never rebuilt into an exception object."""

    type: str
    message: str
    code: str | None = None
    traceback: str | None = None
    fingerprint: str | None = None
    at_us: int | None = None

    @property
    def at(self) -> datetime | None:
        return _moment(self.at_us)


class HistoryRecord(msgspec.Struct, frozen=True, gc=False):
    """One claim that did not simply succeed: what happened, what was decided, and why."""

    generation: int
    fence: int
    attempt: int
    outcome: str  # a Cause of core/change
    worker: str = ""
    started_at_us: int | None = None
    ended_at_us: int | None = None  # written by the store, from its clock
    error: ErrorInfo | None = None
    delay_us: int | None = None  # None: no further run was planned
    why: str = ""

    @property
    def started_at(self) -> datetime | None:
        return _moment(self.started_at_us)

    @property
    def ended_at(self) -> datetime | None:
        return _moment(self.ended_at_us)

    @property
    def delay(self) -> float | None:
        return None if self.delay_us is None else self.delay_us / SECOND_US


class NewJob(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A job as its producer asks for it. The store adds the times, from its own clock."""

    id: str
    queue: str
    task: str
    payload: str
    policy: str  # the frozen numbers, JSON text (policy/retry)
    max_retries: int | None
    priority: int = 0
    delay_us: int = 0
    eta_us: int | None = None  # an absolute time wins over the delay
    timeout_us: int | None = None
    max_age_us: int | None = None
    unique_key: str | None = None
    concurrency_key: str | None = None
    fair_key: str | None = None
    group: str | None = None  # core/groups; made of the two keys above and what the task depends on
    tags: tuple[str, ...] = ()
    trace: str | None = None
    schedule: str | None = None
    tick_us: int | None = None


class Job(msgspec.Struct, frozen=True, gc=False, kw_only=True, array_like=True):
    """A stored job. Fields ending in _us are integer microseconds; the plain names give datetimes and seconds.

    The field order is the column order of the SQL stores, which build this value straight from one JSON array.
    """

    id: str
    queue: str
    task: str
    payload: str
    policy: str
    max_retries: int | None
    priority: int
    lane: Lane
    status: Status
    run_at_us: int | None  # set exactly while pending
    created_at_us: int
    updated_at_us: int
    finished_at_us: int | None
    due_first_us: int  # when this generation first fell due: its age counts from here
    due_us: int  # the run_at it was last given; kept when it is claimed and when it ends
    attempts: int
    failures: int
    crashes: int
    snoozes: int
    releases: int
    generation: int
    timeout_us: int | None
    max_age_us: int | None
    fence: int
    claim_id: str | None
    settle_id: str | None
    lease_owner: str | None
    lease_expires_at_us: int | None
    last_delay_us: int | None
    last_error: ErrorInfo | None
    result_json: str | None
    schedule: str | None
    tick_us: int | None
    unique_key: str | None
    concurrency_key: str | None
    fair_key: str | None
    group: str | None
    tags: tuple[str, ...]
    trace: str | None
    cancel_requested: bool
    read_at_us: int  # the store's time at which this value was read
    history: tuple[HistoryRecord, ...] = ()  # filled by get(), newest last

    @property
    def run_at(self) -> datetime | None:
        return _moment(self.run_at_us)

    @property
    def created_at(self) -> datetime:
        return us_to_datetime(self.created_at_us)

    @property
    def updated_at(self) -> datetime:
        return us_to_datetime(self.updated_at_us)

    @property
    def finished_at(self) -> datetime | None:
        return _moment(self.finished_at_us)

    @property
    def due_first(self) -> datetime:
        return us_to_datetime(self.due_first_us)

    @property
    def due_at(self) -> datetime:
        """When the execution that runs now, or ran last, fell due; for a pending job, when the next one does."""
        return us_to_datetime(self.due_us)

    @property
    def read_at(self) -> datetime:
        return us_to_datetime(self.read_at_us)

    @property
    def lease_expires_at(self) -> datetime | None:
        return _moment(self.lease_expires_at_us)

    @property
    def tick(self) -> datetime | None:
        return _moment(self.tick_us)

    @property
    def next_retry_at(self) -> datetime | None:
        """When the next retry falls due; None for a fresh job, and for a retry that is ready now."""
        if self.lane == "fresh" or self.run_at_us is None or self.run_at_us <= self.read_at_us:
            return None
        return us_to_datetime(self.run_at_us)

    @property
    def timeout(self) -> float | None:
        return None if self.timeout_us is None else self.timeout_us / SECOND_US

    @property
    def max_age(self) -> float | None:
        return None if self.max_age_us is None else self.max_age_us / SECOND_US

    @property
    def last_delay(self) -> float | None:
        return None if self.last_delay_us is None else self.last_delay_us / SECOND_US

    @property
    def result(self) -> Any:
        return decode_result(self.result_json)

    @property
    def args(self) -> list[Any]:
        return decode_payload(self.payload).args

    @property
    def kwargs(self) -> dict[str, Any]:
        return decode_payload(self.payload).kwargs

    @property
    def depends_on(self) -> str | None:
        """The downstream whose breaker and budget this job obeys."""
        return part_of(self.group, DOWNSTREAM) or None

    @property
    def is_retry(self) -> bool:
        return self.lane == "retry"

    @property
    def retries(self) -> int:
        """Executions beyond the first one, in this generation."""
        return max(0, self.attempts - 1)

    @property
    def remaining_retries(self) -> int | None:
        """Executions the policy still allows beyond those already started; None means unlimited."""
        if self.max_retries is None:
            return None
        return max(0, self.max_retries + 1 - max(1, self.attempts))

    @property
    def idempotency_key(self) -> str:
        """Stable over all attempts of one generation; record it with the effect to make the effect happen once."""
        return f"{self.id}:{self.generation}"

    @property
    def view(self) -> str:
        """The derived status people read: scheduled, ready, backing off, stuck, or the stored one."""
        if self.status == "pending":
            if self.run_at_us is not None and self.run_at_us <= self.read_at_us:
                return "ready"
            return "backing off" if self.lane == "retry" else "scheduled"
        if self.status == "processing" and self.lease_expires_at_us is not None and self.lease_expires_at_us <= self.read_at_us:
            return "stuck"
        return self.status


def _moment(us: int | None) -> datetime | None:
    return None if us is None else us_to_datetime(us)


def first_row(job: NewJob, now_us: int) -> Job:
    """A new job as it is first stored."""
    run_at_us = job.eta_us if job.eta_us is not None else now_us + job.delay_us
    return Job(
        id=job.id,
        queue=job.queue,
        task=job.task,
        payload=job.payload,
        policy=job.policy,
        max_retries=job.max_retries,
        priority=job.priority,
        lane="fresh",
        status="pending",
        run_at_us=run_at_us,
        created_at_us=now_us,
        updated_at_us=now_us,
        finished_at_us=None,
        due_first_us=run_at_us,
        due_us=run_at_us,
        attempts=0,
        failures=0,
        crashes=0,
        snoozes=0,
        releases=0,
        generation=1,
        timeout_us=job.timeout_us,
        max_age_us=job.max_age_us,
        fence=0,
        claim_id=None,
        settle_id=None,
        lease_owner=None,
        lease_expires_at_us=None,
        last_delay_us=None,
        last_error=None,
        result_json=None,
        schedule=job.schedule,
        tick_us=job.tick_us,
        unique_key=job.unique_key,
        concurrency_key=job.concurrency_key,
        fair_key=job.fair_key,
        group=job.group,
        tags=job.tags,
        trace=job.trace,
        cancel_requested=False,
        read_at_us=now_us,
    )
