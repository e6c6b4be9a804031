"""The sweeper: finds leases that ran out and lets the same policy decide as for every other outcome.

Any number of sweepers has the effect of one: each takeover is guarded by the fence and by the expiry, so a renewal in between wins.
"""

from __future__ import annotations

import random

from mulligan.core.contract import Signals, Store
from mulligan.core.events import Event, events_of
from mulligan.core.ids import new_id
from mulligan.core.job import Job
from mulligan.core.outcome import LeaseLost
from mulligan.observe.bus import EventBus
from mulligan.policy.decide import decide
from mulligan.policy.retry import RetryPolicy
from mulligan.worker.conditions import Conditions
from mulligan.worker.policies import Policies

SWEEP_BATCH_MAX = 500


class Sweeper:
    """`sweep` is one pass; whoever has one repeats it: each worker, and each supervisor, which no handler can hold up."""

    def __init__(
        self, store: Store, policies: Policies, bus: EventBus, rng: random.Random, worker: str, conditions: Conditions | None = None
    ) -> None:
        self._conditions = conditions  # a supervisor has none: it sees no job run
        self._store = store
        self._policies = policies
        self._bus = bus
        self._rng = rng
        self._worker = worker

    async def sweep(self) -> int:
        """Settles what has lapsed; returns how many jobs it recovered."""
        recovered = 0
        while True:
            jobs = await self._store.overdue(SWEEP_BATCH_MAX)
            if not jobs:
                return recovered
            changes = []
            for job in jobs:
                policy = self._policies.for_job(job)
                outcome = LeaseLost(f"the lease of {job.lease_owner} ran out")
                settle_id = new_id(job.read_at_us)
                changes.append(
                    decide(job, outcome, policy, self._signals(job, policy), self._rng, settle_id=settle_id, worker=self._worker)
                )
            verdicts = await self._store.settle(changes)
            events: list[Event] = []
            for job, change, verdict in zip(jobs, changes, verdicts, strict=True):
                if verdict.applied:
                    recovered += 1
                    if self._conditions is not None:
                        self._conditions.flow.ended(job, ok=False)
                events += events_of(change, verdict)
            self._bus.publish(events)
            if len(jobs) < SWEEP_BATCH_MAX:
                return recovered

    def _signals(self, job: Job, policy: RetryPolicy) -> Signals:
        if self._conditions is None:
            return Signals(now_us=job.read_at_us)
        return self._conditions.sensors.signals(job, job.read_at_us, policy)
