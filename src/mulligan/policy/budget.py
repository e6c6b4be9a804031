"""Rates and retry budgets: how many starts, and how many starts of retries, a whole fleet allows itself."""

from __future__ import annotations

from typing import get_args

import msgspec

from mulligan.core.contract import BudgetMode
from mulligan.core.errors import BadSetting
from mulligan.core.job import Lane
from mulligan.core.limits import TOKEN, Bucket
from mulligan.policy.checks import shown

PER_S_MAX = 1_000_000
BURST_MAX = 1_000_000
BATCH = 100  # fresh starts that come in one claim; a bucket too small for what they bring would spill most of it
WEIGHTED_IS_FOR_QUEUES = 'over="weighted" belongs to a budget of the whole queue, which then falls back to shares; take "wait" here'


class Rate(msgspec.Struct, frozen=True):
    """At most so many starts over time, in the whole fleet. Give per_s, per_minute or per_hour; `burst` of them may come at once.

    burst: what has gathered while nothing was started; without one, what flows in within a second, and at least one.
    """

    per_s: float | None = None
    per_minute: float | None = None
    per_hour: float | None = None
    burst: float | None = None

    def __post_init__(self) -> None:
        given = [name for name in ("per_s", "per_minute", "per_hour") if getattr(self, name) is not None]
        if len(given) != 1:
            raise BadSetting("a Rate needs exactly one of per_s, per_minute and per_hour, such as Rate(per_minute=100)")
        _check(given[0], getattr(self, given[0]), 0, PER_S_MAX)
        if self.burst is not None:
            _check("burst", self.burst, 1, BURST_MAX)

    @property
    def each_s(self) -> float:
        """Starts per second."""
        if self.per_s is not None:
            return self.per_s
        return self.per_minute / 60 if self.per_minute is not None else (self.per_hour or 0) / 3_600

    def bucket(self, key: str, *, part: int | None = None, value: str | None = None, lane: Lane | None = None) -> Bucket:
        """The limit that keeps it."""
        burst = max(1.0, self.each_s) if self.burst is None else self.burst
        return Bucket(key=key, rate_u=_micro(self.each_s), burst_u=_micro(burst), part=part, value=value, lane=lane)


class RetryBudget(msgspec.Struct, frozen=True):
    """How many retries may be started, so that a failing downstream is not hit harder than a healthy one.

    As a rate: RetryBudget(per_minute=100). As a share of fresh work: RetryBudget(ratio=0.2, min_per_s=10), where each fresh start
    pays for a fifth of a retry, and ten a second are always allowed. `burst` is what may gather; without one, what flows in within
    ten seconds, and at least what a hundred fresh starts bring, since workers start many at once. each_tenant: every fair key has a
    budget of its own.

    over: what happens beyond it. Retries always wait for tokens ("wait"). On top of that "backoff" makes the next backoffs `stretch`
    times longer, "weighted" lets a queue that serves retries first fall back to shares, and "fail" gives jobs up that would be retried.
    """

    per_s: float | None = None
    per_minute: float | None = None
    ratio: float | None = None
    min_per_s: float = 0.0
    burst: float | None = None
    each_tenant: bool = False
    over: BudgetMode = "wait"
    stretch: float = 2.0

    def __post_init__(self) -> None:
        given = [name for name in ("per_s", "per_minute", "ratio") if getattr(self, name) is not None]
        if len(given) != 1:
            raise BadSetting("a RetryBudget needs exactly one of per_s, per_minute and ratio, such as RetryBudget(ratio=0.2, min_per_s=10)")
        _check(given[0], getattr(self, given[0]), 0, PER_S_MAX if self.ratio is None else 100)
        _check("min_per_s", self.min_per_s, 0, PER_S_MAX, or_equal=True)
        if self.min_per_s and self.ratio is None:
            raise BadSetting("min_per_s belongs to a budget by ratio; a rate is its own minimum")
        if self.burst is not None:
            _check("burst", self.burst, 1, BURST_MAX)
        if not isinstance(self.each_tenant, bool):
            raise BadSetting(f"each_tenant must be True or False, not {shown(self.each_tenant)}")
        if self.over not in get_args(BudgetMode):
            raise BadSetting(f"over must be one of {', '.join(get_args(BudgetMode))}, not {shown(self.over)}")
        _check("stretch", self.stretch, 1, 1_000, or_equal=True)

    @property
    def each_s(self) -> float:
        """Retries per second that are allowed whatever else is going on."""
        if self.ratio is not None:
            return self.min_per_s
        return self.per_s if self.per_s is not None else (self.per_minute or 0) / 60

    def bucket(self, key: str, *, part: int | None = None, value: str | None = None) -> Bucket:
        """The limit that keeps it."""
        ratio = 0 if self.ratio is None else self.ratio
        burst = max(1.0, 10 * self.each_s, BATCH * ratio) if self.burst is None else self.burst
        return Bucket(
            key=key, rate_u=_micro(self.each_s), burst_u=_micro(burst), ratio_u=_micro(ratio), lane="retry", part=part, value=value
        )


def _micro(tokens: float) -> int:
    return round(tokens * TOKEN)


def _check(name: str, value: object, low: float, high: float, *, or_equal: bool = False) -> None:
    """BadSetting for what is no number in the bounds; the lower one itself only where that is said."""
    fine = isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value <= high
    if not fine or (value == low == 0 and not or_equal):
        words = f"from {low:g}" if or_equal or low else "above 0, at most"
        raise BadSetting(f"{name} must be a number {words} {'to ' if or_equal or low else ''}{high:g}, not {shown(value)}")
