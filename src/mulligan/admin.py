"""What operators ask of a queue: look, requeue, cancel, pause, resume. All of it passes the same contract as the workers."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Collection, Sequence
from datetime import datetime
from typing import Any

import msgspec

from mulligan.core.clock import SECOND_US, Clock, us_to_datetime
from mulligan.core.codec import MESSAGE_CHARS_MAX, check_key, storable_text
from mulligan.core.contract import FIND_LIMIT_MAX, CancelAnswer, Query, QueueState, QueueStats, Signals, Store, WorkerInfo
from mulligan.core.errors import BadSetting, JobNotFound, UnknownQueue, shown
from mulligan.core.events import Event, events_of
from mulligan.core.figures import FigureView, total, view_of
from mulligan.core.ids import is_id, new_id
from mulligan.core.job import LANES, STATUSES, Job
from mulligan.core.outcome import Requeued
from mulligan.fleet import LimitStatus, alive, all_limits
from mulligan.observe.bus import EventBus
from mulligan.observe.flow import RECENT_US
from mulligan.policy.decide import decide
from mulligan.policy.retry import thaw
from mulligan.steering import BreakerStatus, Steering

OPERATOR_CHARS_MAX = 200


class CurrentJob(msgspec.Struct, frozen=True, kw_only=True):
    """The longest running job of a queue."""

    job_id: str
    task: str
    retry_count: int
    is_retry: bool
    running_s: float


class QueueStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One queue as people read it. The sizes count what waits, due or not; `ready` and `retry_ready` only what is due."""

    region: str
    queue_size: int
    retry_queue_size: int
    processing: bool
    current_job: CurrentJob | None
    running: int
    ready: int
    retry_ready: int
    stuck: int
    done: int
    failed: int
    cancelled: int
    paused: bool
    pause_reason: str
    oldest_ready_s: float | None  # how long the longest waiting due job has been due
    next_due_in_s: float | None
    oldest_fresh_s: float | None = None  # the same for fresh jobs alone
    oldest_retry_s: float | None = None  # and for retries
    retries_running: int = 0  # of `running`
    claim: str = ""  # the strategy it is served by; empty while no worker serves it
    recent: FigureView | None = None  # what the workers counted in the last ten minutes


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """All queues and the workers heard of lately."""

    at: datetime
    queues: list[QueueStatus]
    workers: list[WorkerInfo]
    limits: list[LimitStatus] = []  # of the whole fleet, with what is left of them
    breakers: list[BreakerStatus] = []

    def __getitem__(self, queue: str) -> QueueStatus:
        for one in self.queues:
            if one.region == queue:
                return one
        raise UnknownQueue(f"no queue {shown(queue)} has jobs or settings; known: {', '.join(q.region for q in self.queues) or 'none'}")


class Admin:
    """The operators' calls on one open store."""

    def __init__(self, store: Store, bus: EventBus, rng: random.Random, clock: Clock) -> None:
        self._store = store
        self._bus = bus
        self._rng = rng
        self._clock = clock

    async def get(self, job_id: str) -> Job:
        """The job with its history; JobNotFound otherwise."""
        found = await self._store.get([job_id]) if is_id(job_id) else [None]
        if found[0] is None:
            raise JobNotFound(f"no job has the id {shown(job_id)}; finished jobs are removed after their retention")
        return found[0]

    async def jobs(self, query: Query, limit: int | None) -> AsyncIterator[Job]:
        """Jobs that match, newest first, fetched page by page."""
        check_query(query)
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
            raise BadSetting(f"limit must be a whole number from 0, or None for all, not {shown(limit)}")
        after: str | None = None
        left = limit
        while left is None or left > 0:
            page = await self._store.find(query, FIND_LIMIT_MAX if left is None else min(left, FIND_LIMIT_MAX), after)
            for job in page.jobs:
                yield job
            if page.after is None:
                return
            after = page.after
            left = None if left is None else left - len(page.jobs)

    async def requeue(self, job_id: str, *, request_id: str | None = None, by: str = "") -> bool:
        """Sends one failed job back; True if this call (or an earlier one with the same request id) did it."""
        job = await self.get(job_id)
        signals = Signals(now_us=job.read_at_us)
        settle_id = new_id(self._clock.now_us()) if request_id is None else check_key(request_id, "request_id")
        by = storable_text(by, OPERATOR_CHARS_MAX)
        if job.status != "failed" and job.settle_id != settle_id:
            return False  # what it fails of meanwhile is not in this value, and must not be overwritten by it
        change = decide(job, Requeued(by=by), thaw(job.policy, None), signals, self._rng, settle_id=settle_id, worker=by)
        [verdict] = await self._store.settle([change])
        if verdict.applied:
            self._bus.publish(events_of(change, verdict))
        return verdict.applied

    async def cancel(self, job_id: str) -> CancelAnswer:
        """Cancels a pending job at once, asks a running one to stop; "finished" if it was too late."""
        job = await self.get(job_id)
        [answer] = await self._store.request_cancel([job_id])
        if answer == "missing":
            raise JobNotFound(f"job {job_id} was removed meanwhile")
        if answer == "cancelled" and job.status == "pending":
            self._bus.publish(
                [Event(kind="CANCELLED", at_us=job.read_at_us, job_id=job.id, queue=job.queue, task=job.task, fence=job.fence)]
            )
        return answer

    async def set_paused(self, queue: str, paused: bool, known: Collection[str], *, reason: str = "", by: str = "") -> QueueState:
        """Pauses or resumes a queue for all workers."""
        if queue not in known:
            stats = await self._store.stats()
            names = sorted({*known, *(one.queue for one in stats.queues)})
            if queue not in names:
                raise UnknownQueue(f"no queue is named {shown(queue)}; known: {', '.join(names) or 'none'}")
        reason, by = storable_text(reason, MESSAGE_CHARS_MAX), storable_text(by, OPERATOR_CHARS_MAX)
        state = await self._store.set_queue(queue, paused=paused, reason=reason, by=by)
        kind: Any = "QUEUE_PAUSED" if paused else "QUEUE_RESUMED"
        self._bus.publish([Event(kind=kind, at_us=state.updated_at_us, queue=queue, detail={"reason": reason, "by": by})])
        return state

    async def status(self) -> Status:
        """Everything at a glance, from stored state alone."""
        stats = await self._store.stats()
        reasons = {state.queue: state.reason for state in await self._store.queue_states() if state.paused}
        workers = await self._store.workers()
        now_us = stats.now_us
        running = alive(workers, now_us)
        heard_of = [worker for worker in workers if now_us - worker.seen_at_us <= RECENT_US]  # what the stopped ones counted happened, too
        return Status(
            at=us_to_datetime(now_us),
            queues=[_queue_status(queue, now_us, reasons.get(queue.queue, ""), running, heard_of) for queue in stats.queues],
            workers=running,
            limits=all_limits(running, await self._store.levels(), stats.queues, now_us),
            breakers=await Steering(self._store, self._bus).breakers(),
        )


def check_query(query: Query) -> None:
    """Refuses a filter that could never match, naming what is allowed."""
    if query.status is not None and query.status not in STATUSES:
        raise BadSetting(f"status must be one of {', '.join(STATUSES)}, not {shown(query.status)}")
    if query.lane is not None and query.lane not in LANES:
        raise BadSetting(f"lane must be fresh or retry, not {shown(query.lane)}")


def _queue_status(
    stats: QueueStats, now_us: int, pause_reason: str, running: Sequence[WorkerInfo], heard_of: Sequence[WorkerInfo]
) -> QueueStatus:
    current = stats.current_job
    counted = [worker.figures[stats.queue] for worker in heard_of if stats.queue in worker.figures]
    return QueueStatus(
        region=stats.queue,
        queue_size=stats.fresh_ready + stats.fresh_later,
        retry_queue_size=stats.retry_ready + stats.retry_later,
        processing=stats.processing > 0,
        current_job=None
        if current is None
        else CurrentJob(
            job_id=current.job_id,
            task=current.task,
            retry_count=current.retry_count,
            is_retry=current.is_retry,
            running_s=max(0, now_us - current.since_us) / SECOND_US,
        ),
        running=stats.processing,
        ready=stats.fresh_ready,
        retry_ready=stats.retry_ready,
        stuck=stats.stuck,
        done=stats.done,
        failed=stats.failed,
        cancelled=stats.cancelled,
        paused=stats.paused,
        pause_reason=pause_reason,
        oldest_ready_s=_age_s(stats.oldest_ready_us, now_us),
        next_due_in_s=None if stats.next_due_us is None else max(0, stats.next_due_us - now_us) / SECOND_US,
        oldest_fresh_s=_age_s(stats.fresh_oldest_us, now_us),
        oldest_retry_s=_age_s(stats.retry_oldest_us, now_us),
        retries_running=stats.retries_running,
        claim=", ".join(sorted({worker.claims[stats.queue] for worker in running if stats.queue in worker.claims})),
        recent=view_of(total(counted)) if counted else None,
    )


def _age_s(since_us: int | None, now_us: int) -> float | None:
    return None if since_us is None else max(0, now_us - since_us) / SECOND_US
