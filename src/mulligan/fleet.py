"""What is known of a running fleet from outside: who is alive, which limits its workers keep, and what is left of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from mulligan.core.clock import SECOND_US
from mulligan.core.contract import FIND_LIMIT_MAX, Query, QueueStats, Store, WorkerInfo
from mulligan.core.groups import DOWNSTREAM, FAIR, TASK
from mulligan.core.job import Job, Lane
from mulligan.core.limits import TOKEN, Bucket, Level, Limit, Slots, level_now

WORKER_SEEN_US = 45 * SECOND_US  # a worker not heard of for longer is not counted as alive
Kind = Literal["budget", "rate", "slots"]
_OWNERS = {None: "queue", FAIR: "tenant", DOWNSTREAM: "downstream", TASK: "task"}


class LimitStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One limit of the fleet, and what is left of it now."""

    kind: Kind  # budget: starts of retries over time; rate: starts over time; slots: jobs at once
    owner: str  # queue, task, tenant, downstream or key
    name: str  # of that owner
    queue: str | None  # where it holds; None: in all queues
    lane: Lane | None  # for which jobs; None: for both lanes
    most: float  # slots there are, or tokens that may gather
    left: float  # of these; below 1 nothing may start
    per_s: float | None = None  # tokens that flow in; a budget by ratio has more, with each fresh start

    @property
    def is_spent(self) -> bool:
        """Whether nothing may start under it now."""
        return self.left < 1


def alive(workers: Iterable[WorkerInfo], now_us: int) -> list[WorkerInfo]:
    """Those that run, as far as anybody knows."""
    return [worker for worker in workers if not worker.stopped and now_us - worker.seen_at_us <= WORKER_SEEN_US]


async def limits_of(store: Store, job: Job) -> list[LimitStatus]:
    """The limits that a start of this job is under, as they are now."""
    stats = await store.stats()
    workers = alive(await store.workers(), stats.now_us)
    same_key = 0
    if job.concurrency_key is not None:
        found = await store.find(Query(queue=job.queue, status="processing"), FIND_LIMIT_MAX)
        same_key = sum(other.concurrency_key == job.concurrency_key and other.view != "stuck" for other in found.jobs)
    return limits_for(job, workers, await store.levels(), stats.queues, same_key, stats.now_us)


def kept_by(workers: Iterable[WorkerInfo]) -> list[tuple[str, Limit]]:
    """The limits of a fleet with the queues they are for ("" for all), each once."""
    found = {(queue, limit): None for worker in workers for queue, limits in sorted(worker.limits.items()) for limit in limits}
    return list(found)


def all_limits(workers: Sequence[WorkerInfo], levels: Mapping[str, Level], queues: Iterable[QueueStats], now_us: int) -> list[LimitStatus]:
    """Every limit that is kept. Of budgets that each tenant has, only the emptiest; slots of single keys are left out."""
    stats = {one.queue: one for one in queues}
    found = []
    for queue, limit in kept_by(workers):
        if isinstance(limit, Slots):
            if not limit.by_key:
                found.append(_slots(queue, limit, _running(stats.get(queue), limit.lane), queue, "queue"))
        elif limit.part is not None and limit.value is None:
            found += _emptiest(queue, limit, levels, now_us)
        else:
            found.append(_bucket(queue, limit, levels.get(limit.key), now_us, limit.value or queue))
    return found


def limits_for(
    job: Job, workers: Sequence[WorkerInfo], levels: Mapping[str, Level], queues: Iterable[QueueStats], same_key: int, now_us: int
) -> list[LimitStatus]:
    """Those that a start of this job is under. `same_key`: how many jobs with its concurrency key run in its queue."""
    stats = {one.queue: one for one in queues}
    found = []
    for queue, limit in kept_by(workers):
        if queue not in ("", job.queue):
            continue
        if isinstance(limit, Slots):
            if limit.applies(job.lane, job.group):
                running = same_key if limit.by_key else _running(stats.get(job.queue), limit.lane)
                owner, name = ("key", job.concurrency_key or "") if limit.by_key else ("queue", queue)
                found.append(_slots(queue, limit, running, name, owner))
        elif limit.lane in (None, job.lane) and (key := limit.key_for(job.group)) is not None:
            name = key.removeprefix(f"{limit.key}/") if key != limit.key else limit.value or queue
            found.append(_bucket(queue, limit, levels.get(key), now_us, name))
    return found


def _running(stats: QueueStats | None, lane: Lane | None) -> int:
    if stats is None:
        return 0
    if lane == "retry":
        return stats.retries_running
    return stats.processing - (stats.stuck if lane is None else stats.retries_running)


def _slots(queue: str, limit: Slots, running: int, name: str, owner: str) -> LimitStatus:
    left = max(0, limit.most - running)
    return LimitStatus(kind="slots", owner=owner, name=name, queue=queue, lane=limit.lane, most=limit.most, left=left)


def _bucket(queue: str, limit: Bucket, stored: Level | None, now_us: int, name: str) -> LimitStatus:
    return LimitStatus(
        kind="budget" if limit.lane == "retry" else "rate",
        owner=_OWNERS.get(limit.part, "queue"),
        name=name,
        queue=queue or None,
        lane=limit.lane,
        most=limit.burst_u / TOKEN,
        left=max(0.0, level_now(limit, stored, now_us) / TOKEN),
        per_s=limit.rate_u / TOKEN,
    )


def _emptiest(queue: str, limit: Bucket, levels: Mapping[str, Level], now_us: int) -> list[LimitStatus]:
    """The bucket of the one value that has the least left; none if nobody has drawn from one yet."""
    prefix = f"{limit.key}/"
    own = [_bucket(queue, limit, level, now_us, key.removeprefix(prefix)) for key, level in levels.items() if key.startswith(prefix)]
    return [min(own, key=lambda one: (one.left, one.name))] if own else []
