"""The manual way: claim a job, do the work yourself, say how it ended. The same policy decides as in a worker."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from mulligan.core.change import Grip
from mulligan.core.clock import Clock, seconds_to_us
from mulligan.core.codec import encode_result
from mulligan.core.contract import Store
from mulligan.core.events import events_of
from mulligan.core.ids import new_id
from mulligan.core.job import Job
from mulligan.core.outcome import Outcome, Raised, Released, Ruling, Snoozed, Succeeded
from mulligan.observe.bus import EventBus
from mulligan.policy.decide import decide
from mulligan.policy.error_info import reported
from mulligan.policy.retry import RetryPolicy
from mulligan.worker.conditions import Conditions
from mulligan.worker.receipts import ReceiptBook
from mulligan.worker.steps import Once, Step, Steps


class Lease(Once):
    """One job claimed by hand. Nothing renews it but `extend`; every call answers False once it is no longer yours.

    Except `once`: its receipt is refused then, with LeaseLost. A store that is away is told at once; what the step returned is kept, and
    the same call made again stores it without doing the step again.
    """

    def __init__(
        self,
        job: Job,
        lease_us: int,
        *,
        store: Store,
        bus: EventBus,
        policy_of: Callable[[Job], RetryPolicy],
        rng: random.Random,
        clock: Clock,
        conditions: Conditions,
    ) -> None:
        self._conditions = conditions
        self.job = job
        self._lease_us = lease_us
        self._store = store
        self._bus = bus
        self._policy_of = policy_of
        self._rng = rng
        self._clock = clock
        self._steps: Steps | None = None  # made by the first step
        self._unanswered: tuple[type[Outcome], str] | None = None  # a settle whose verdict never came, and its id

    @property
    def id(self) -> str:
        return self.job.id

    def __repr__(self) -> str:
        return f"Lease({self.job.task!r}, {self.job.id!r}, fence={self.job.fence})"

    async def complete(self, result: Any = None) -> bool:
        """The job is done."""
        return await self._settle(Succeeded(encode_result(result)))

    async def fail(
        self,
        message: str,
        *,
        code: str | int | None = None,
        exception_type: str = "Failure",
        traceback: str | None = None,
        retry: bool = True,
        after: float | None = None,
    ) -> bool:
        """The attempt failed: retried by the job's policy (or `after` seconds), or given up at once with retry=False."""
        now_us = await self._store.now_us()
        error = reported(message, now_us, exception_type=exception_type, code=code, traceback=traceback)
        after_us = None if after is None else seconds_to_us(after, "after")
        ruling: Ruling = "retry" if retry else "give_up"
        return await self._settle(Raised(error=error, ruling=ruling, rule="failed by hand", after_us=after_us))

    async def snooze(self, seconds: float, message: str = "") -> bool:
        """Not now: due again in `seconds`, without spending a retry."""
        return await self._settle(Snoozed(seconds_to_us(seconds, "seconds"), message))

    async def release(self, reason: str = "released by hand") -> bool:
        """Gives it back as if it had not been claimed."""
        return await self._settle(Released(reason))

    async def extend(self, seconds: float | None = None) -> bool:
        """Holds it for another lease (or `seconds`) from now; False if it is no longer yours."""
        lease_us = self._lease_us if seconds is None else seconds_to_us(seconds, "seconds")
        [renewal] = await self._store.renew([Grip(self.job.id, self.job.fence)], lease_us)
        return renewal.held

    def _step(self, name: str) -> Step:
        if self._steps is None:
            self._steps = Steps(self.job, ReceiptBook(self._store))
        return Step(name, self._steps)

    async def _settle(self, outcome: Outcome) -> bool:
        now_us = await self._store.now_us()
        if self._unanswered is None or self._unanswered[0] is not type(outcome):
            self._unanswered = (type(outcome), new_id(self._clock.now_us()))
        policy = self._policy_of(self.job)
        change = decide(
            self.job,
            outcome,
            policy,
            self._conditions.sensors.signals(self.job, now_us, policy),
            self._rng,
            settle_id=self._unanswered[1],  # the same when the same call is repeated after an unknown end
            worker=self.job.lease_owner or "",
            started_at_us=self.job.updated_at_us,
        )
        [verdict] = await self._store.settle([change])
        self._unanswered = None
        if verdict.applied:
            self._conditions.ended(self.job, outcome)
        self._bus.publish(events_of(change, verdict))
        return verdict.applied
