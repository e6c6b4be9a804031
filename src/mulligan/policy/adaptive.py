"""Adaptive: how much longer delays become while a queue is congested, so that retries make room when there is none."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import astuple

from mulligan.core.clock import SECOND_US
from mulligan.core.contract import DEPTH_MAX, Signals
from mulligan.core.errors import BadPolicy
from mulligan.policy.checks import checked_count, checked_number, checked_seconds, shown, span

MOST_DEFAULT = 16
FACTOR_MAX = 1_000
FAILURES_MIN = 0.001

Given = float | UnsetType | None


class Adaptive(msgspec.Struct, frozen=True):
    """What makes a delay longer: it is multiplied by 1 + jobs waiting / depth + age of the oldest / age + failure rate x failures.

    depth: so many due jobs double a delay. age: so many seconds that the oldest of them has waited double it. failures: what is added
    to the factor when every execution fails. Each counts only where it is given. most: the largest factor; None is no maximum.

    What is left out is taken from the next wider policy; None switches a part off, even where a wider policy has it.
    """

    depth: int | UnsetType | None = UNSET
    age: Given = UNSET
    failures: Given = UNSET
    most: Given = UNSET

    def __post_init__(self) -> None:
        for name, value in zip(self.__struct_fields__, astuple(self), strict=True):
            if value is not None and value is not UNSET:
                msgspec.structs.force_setattr(self, name, _checked(name, value))

    def over(self, base: Adaptive | None) -> Adaptive:
        """This one, with what it leaves out taken from `base`. Over None, which switches adapting off, nothing wider is looked at."""
        if base is None:
            return self.filled()
        pairs = zip(astuple(self), astuple(base), strict=True)
        return Adaptive(*(theirs if mine is UNSET else mine for mine, theirs in pairs))

    def filled(self) -> Adaptive:
        """The same with nothing left out; BadPolicy if there is nothing that it could follow."""
        filled = Adaptive(*self.numbers())
        if filled.depth is None and filled.age is None and filled.failures is None:
            raise BadPolicy(
                "adaptive needs at least one of depth, age and failures, such as Adaptive(depth=10); "
                "to switch it off, give the policy adaptive=None"
            )
        return filled

    def numbers(self) -> list[Any]:
        """The fields in their order, defaults filled in: each part off, and the largest factor 16."""
        defaults = (None, None, None, MOST_DEFAULT)
        return [default if value is UNSET else value for value, default in zip(astuple(self), defaults, strict=True)]

    @property
    def largest(self) -> float:
        """The factor that no congestion exceeds; infinite where there is no maximum."""
        most = self.numbers()[-1]
        return math.inf if most is None else float(most)

    def factor(self, signals: Signals) -> tuple[float, str]:
        """By how much delays grow under these signals, at least 1, and in words what for; no words where nothing is congested."""
        shares = list(self._shares(signals))
        wanted = 1 + sum(share for share, _ in shares)
        factor = min(wanted, self.largest)
        if factor <= 1:
            return 1, ""
        causes = " and ".join(words for _, words in shares)
        return factor, f"x {times(factor)}{', the most allowed,' if wanted > factor else ''} for {causes}"

    def _shares(self, signals: Signals) -> Iterator[tuple[float, str]]:
        """What each signal adds to the factor, in words too; only those that add something."""
        depth, age, failures, _ = self.numbers()
        if depth is not None and signals.depth > 0:
            counted = f"{signals.depth:,}" + (" or more" if signals.depth >= DEPTH_MAX else "")
            yield signals.depth / depth, f"{counted} {'job' if signals.depth == 1 else 'jobs'} waiting"
        if age is not None and signals.oldest_age_us > 0:  # below 0 where clocks disagree
            oldest_s = signals.oldest_age_us / SECOND_US
            yield oldest_s / age, f"the oldest waiting for {span(oldest_s)}"
        if failures is not None and signals.failure_rate > 0:
            yield signals.failure_rate * failures, f"{signals.failure_rate * 100:.3g} % of executions failing"


def grown(seconds: float, factor: float, ceiling: float) -> float:
    """A delay times the factor of a congestion, which never lifts it above the backoff's cap."""
    return min(seconds * factor, ceiling)


def lifted(previous: float | None, start: float, factor: float, ceiling: float) -> float:
    """The delay before as decorrelated jitter sees it in a congestion: at least the first delay times the factor.

    That jitter draws from the delay before and not from the raw one, so a longer raw delay alone would change nothing. The delay before
    is not multiplied itself: it grew when it was chosen, and would grow again with each failure.
    """
    lowest = grown(start, factor, ceiling)
    return lowest if previous is None else max(previous, lowest)


def times(factor: float) -> str:
    """A factor, short: 2, 4.3, 1,001."""
    return f"{factor:.3g}" if factor < 100 else f"{factor:,.0f}"


def checked_adaptive(given: object) -> Adaptive:
    """The value, if it is one of these; BadPolicy for anything else."""
    if not isinstance(given, Adaptive):
        raise BadPolicy(f"adaptive must be Adaptive(...), such as Adaptive(depth=10), not {shown(given)}")
    return given


def _checked(name: str, value: object) -> float:
    field = f"adaptive {name}"
    if name == "depth":
        return checked_count(value, field, 1)
    if name == "age":
        return checked_seconds(value, field)
    return checked_number(value, field, FAILURES_MIN if name == "failures" else 1, FACTOR_MAX, "")
