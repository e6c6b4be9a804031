"""Sensors: what a worker knows of the world beyond the job, for the policy (Signals) and for its claims (limits).

None of it is read before a write. Bucket levels come with the claims that meet them, and are counted on from there; how full a queue is
comes with the board's beat; how many executions fail is counted here, as they end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mulligan.core.contract import DEPTH_MAX, Pulse, Signals
from mulligan.core.job import Job
from mulligan.core.limits import TOKEN, Bucket, Level, Limit, level_now
from mulligan.policy.budget import RetryBudget
from mulligan.policy.queues import Queue
from mulligan.policy.retry import RetryPolicy
from mulligan.worker.registry import Registry

RECENT = 0.02  # weight of the newest execution in the failure rate: about the last fifty count
LEVELS_MAX = 10_000  # levels kept; stored data must not grow this process


class Sensors:
    """One per worker. Told by the fetcher, the executor and the board; asked by whoever decides."""

    def __init__(self, registry: Registry, queues: Mapping[str, Queue], *, adapts: bool) -> None:
        self._registry = registry
        self._queues = queues
        self.adapts = adapts  # some policy looks at congestion, so it is measured
        self._levels: dict[str, Level] = {}
        self._pulses: dict[str, Pulse] = {}
        self._failing: dict[str, float] = {}
        self._downstream_budgets: dict[str, tuple[Bucket, RetryBudget]] = {}

    def on_levels(self, levels: Mapping[str, int], now_us: int) -> None:
        """What a claim saw in its buckets."""
        if len(self._levels) > LEVELS_MAX:
            self._levels.clear()
        for key, level_u in levels.items():
            self._levels[key] = Level(level_u, now_us)

    def on_pulses(self, pulses: Iterable[Pulse]) -> None:
        """How full the queues are."""
        self._pulses = {pulse.queue: pulse for pulse in pulses}

    def on_downstreams(self, budgets: Mapping[str, tuple[Bucket, RetryBudget]]) -> None:
        """The budgets of what jobs depend on, by name."""
        self._downstream_budgets = dict(budgets)

    def ended(self, queue: str, *, ok: bool) -> None:
        """An execution has ended."""
        rate = self._failing.get(queue, 0.0)
        self._failing[queue] = rate + RECENT * ((0.0 if ok else 1.0) - rate)

    def task_limits(self) -> tuple[Limit, ...]:
        """The limits of all tasks this process knows."""
        return self._registry.limits()

    def signals(self, job: Job, now_us: int, policy: RetryPolicy | None = None) -> Signals:
        """What the policy may know when it decides about this job. If it adapts, what it looks at is measured from now on."""
        if policy is not None and policy.adaptive:
            self.adapts = True
        if not (self._levels or self._pulses or self._failing):
            return Signals(now_us=now_us)  # as where nothing is limited and no policy adapts
        over = self._over_budget(job, now_us) if self._levels else None
        pulse = self._pulses.get(job.queue)
        age_us = 0 if pulse is None or pulse.oldest_us is None else max(0, now_us - pulse.oldest_us)
        return Signals(
            now_us=now_us,
            depth=0 if pulse is None else min(DEPTH_MAX, pulse.depth),
            oldest_age_us=age_us,
            failure_rate=self._failing.get(job.queue, 0.0),
            over_budget=None if over is None else over.over,
            stretch=1.0 if over is None else over.stretch,
        )

    def _over_budget(self, job: Job, now_us: int) -> RetryBudget | None:
        """The strictest of the spent budgets that a retry of this job would draw on."""
        spent = [budget for bucket, budget in self._budgets(job) if self._is_spent(bucket, bucket.key_for(job.group), now_us)]
        return min(spent, key=lambda budget: (_STRICTEST_FIRST.index(budget.over), -budget.stretch), default=None)

    def _is_spent(self, bucket: Bucket, key: str | None, now_us: int) -> bool:
        """Whether there is no token in it by now: the claim that saw it empty may be long ago."""
        seen = None if key is None else self._levels.get(key)
        return seen is not None and level_now(bucket, seen, now_us) < TOKEN

    def _budgets(self, job: Job) -> Sequence[tuple[Bucket, RetryBudget]]:
        found: list[tuple[Bucket, RetryBudget]] = []
        queue, task = self._queues.get(job.queue), self._registry.get(job.task)
        for owner in (queue, task):
            if owner is not None and owner.budget is not None:
                found += [(limit, owner.budget) for limit in owner.limits if isinstance(limit, Bucket) and limit.lane == "retry"]
        if job.depends_on in self._downstream_budgets:
            found.append(self._downstream_budgets[job.depends_on])
        return found


_STRICTEST_FIRST = ("fail", "backoff", "weighted", "wait")
