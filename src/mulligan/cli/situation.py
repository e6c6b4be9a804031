"""Where a job stands, in one word: its status, and what it waits for. Pure; `why` and its JSON are built on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from mulligan.admin import Status
from mulligan.core.contract import QueueState, WorkerInfo
from mulligan.core.job import Job

Situation = Literal[
    "scheduled",  # fresh, and not due yet
    "backing off",  # failed before, and not due yet
    "paused",  # due, but its queue is paused
    "no worker",  # due, but no worker that is alive serves its queue
    "unknown task",  # due, but none of the workers that serve its queue knows its task
    "held back",  # due, but a limit of the fleet or a breaker is in the way
    "busy",  # due, and every worker that serves its queue is full
    "ready",  # due, and about to be started
    "running",
    "stopping",  # running, and asked to be cancelled
    "stuck",  # running, as far as anybody knows, but its lease has ended
    "done",
    "failed",
    "cancelled",
]


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What of the world beyond a job decides when it runs."""

    paused: QueueState | None  # the pause of its queue, if there is one
    serving: tuple[WorkerInfo, ...]  # the workers alive that serve its queue
    alive: int  # all workers alive
    waiting: int  # due jobs of its queue, itself included
    holding: tuple[str, ...] = ()  # what limits and breakers have against it now, in sentences


def surroundings(job: Job, status: Status, states: Sequence[QueueState] = (), holding: Sequence[str] = ()) -> Surroundings:
    """The surroundings of one job, from the status of all queues and their stored settings."""
    queue = next((one for one in status.queues if one.region == job.queue), None)
    paused = next((state for state in states if state.queue == job.queue and state.paused), None)
    if paused is None and queue is not None and queue.paused:
        paused = QueueState(queue=job.queue, paused=True, reason=queue.pause_reason)
    return Surroundings(
        paused=paused,
        serving=tuple(worker for worker in status.workers if job.queue in worker.queues),
        alive=len(status.workers),
        waiting=0 if queue is None else queue.ready + queue.retry_ready,
        holding=tuple(holding),
    )


def situation(job: Job, around: Surroundings) -> Situation:
    """Where the job stands."""
    if job.status == "processing":
        if job.view == "stuck":
            return "stuck"
        return "stopping" if job.cancel_requested else "running"
    if job.status != "pending":
        return job.status
    if job.view != "ready":
        return "backing off" if job.view == "backing off" else "scheduled"
    if around.paused is not None:
        return "paused"
    if not around.serving:
        return "no worker"
    if all(job.task in worker.unknown_tasks for worker in around.serving):
        return "unknown task"
    if around.holding:
        return "held back"
    if all(worker.running >= worker.concurrency for worker in around.serving):
        return "busy"
    return "ready"
