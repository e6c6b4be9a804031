"""Downstream: what jobs depend on (`depends_on="stripe"`), and how much of it a whole fleet allows itself."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from mulligan.core.codec import check_name
from mulligan.core.errors import BadSetting
from mulligan.core.groups import DOWNSTREAM
from mulligan.core.limits import Bucket
from mulligan.policy import breaker as breakers
from mulligan.policy.breaker import Breaker, BreakerState, Calls, Turned
from mulligan.policy.budget import WEIGHTED_IS_FOR_QUEUES, Rate, RetryBudget
from mulligan.policy.checks import shown

_DEFAULT = Breaker()


class Downstream(msgspec.Struct, frozen=True):
    """One downstream. All jobs that depend on it share its breaker, its retry budget and its rate, in all queues and all processes.

    breaker None: failures never open it; a Retry-After and an operator still hold its jobs.
    """

    name: str
    breaker: Breaker | None = _DEFAULT
    budget: RetryBudget | None = None
    rate: Rate | None = None

    def __post_init__(self) -> None:
        check_name(self.name, "downstream")
        for field, kind in (("breaker", Breaker), ("budget", RetryBudget), ("rate", Rate)):
            value = getattr(self, field)
            if value is not None and not isinstance(value, kind):
                raise BadSetting(f"downstream {self.name}: {field} must be a {kind.__name__}(...) or None, not {shown(value)}")
        if self.budget is not None and self.budget.each_tenant:
            raise BadSetting(
                f"downstream {self.name}: its budget is one for all tenants, whose retries it gets together; leave each_tenant out, "
                "or give the queue a budget for each tenant"
            )
        if self.budget is not None and self.budget.over == "weighted":
            raise BadSetting(f"downstream {self.name}: {WEIGHTED_IS_FOR_QUEUES}")

    def passed(self, state: BreakerState, now_us: int) -> Turned:
        """What the passing of time alone changes."""
        return (state, []) if self.breaker is None else breakers.passed(state, self.breaker, now_us)

    def reported(self, state: BreakerState, calls: Calls, now_us: int) -> Turned:
        """What ended calls change."""
        if self.breaker is None:
            return breakers.held(state, calls.retry_after_us, now_us)
        return breakers.reported(state, self.breaker, calls, now_us)

    def limits(self, state: BreakerState, now_us: int) -> tuple[Bucket, ...]:
        """What the claim has to keep for the jobs that depend on it."""
        return breakers.limits(self.name, self.seen(state), self.breaker or _DEFAULT, now_us) + self.lasting_limits()

    def lasting_limits(self) -> tuple[Bucket, ...]:
        """Those of its budget and its rate, which no state changes."""
        found: tuple[Bucket, ...] = ()
        if (budget := self.budget_bucket()) is not None:
            found += (budget,)
        if self.rate is not None:
            found += (self.rate.bucket(f"rate:downstream:{self.name}", part=DOWNSTREAM, value=self.name),)
        return found

    def budget_bucket(self) -> Bucket | None:
        """The bucket its retries draw from."""
        return None if self.budget is None else self.budget.bucket(f"budget:downstream:{self.name}", part=DOWNSTREAM, value=self.name)

    def refusal(self, state: BreakerState, began_us: int, now_us: int) -> str:
        """Why a job that was claimed at `began_us` must not start now; empty if it may."""
        why = breakers.refusal(self.seen(state), began_us, now_us)
        return f"it depends on {self.name}, and {why}" if why else ""

    def wakes_at(self, state: BreakerState, now_us: int) -> int | None:
        """When time alone will next change what is allowed."""
        return breakers.wakes_at(self.seen(state), self.breaker or _DEFAULT, now_us)

    def seen(self, state: BreakerState) -> BreakerState:
        """Without a breaker, what one has left behind (or other workers have) means nothing; an operator's word does."""
        return state if self.breaker is not None or state.manual else replace(state, state="closed")
