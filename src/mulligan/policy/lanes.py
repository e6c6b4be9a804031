"""Claim strategies: how a queue's share of a claim is split between fresh work and retries."""

from __future__ import annotations

import msgspec

from mulligan.core.errors import BadSetting
from mulligan.policy.checks import shown

SLOTS_MAX = 1_000_000


class Weighted(msgspec.Struct, frozen=True):
    """Retries get `retry_share` of all starts and fresh work the rest, both guaranteed while both wait; an idle share is lent."""

    retry_share: float = 0.2

    def __post_init__(self) -> None:
        share = self.retry_share
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share < 1:
            raise BadSetting(f"retry_share must be a number above 0 and below 1, not {shown(share)}")


class RetryFirst(msgspec.Struct, frozen=True):
    """Due retries before fresh jobs. A flood of retries keeps fresh work waiting."""


class FreshFirst(msgspec.Struct, frozen=True):
    """Fresh jobs before due retries. A flood of fresh work keeps retries waiting."""


class Fifo(msgspec.Struct, frozen=True):
    """The oldest job first, by creation, whether fresh or retried."""


class Separate(msgspec.Struct, frozen=True):
    """The retry lane has a concurrency of its own: at most `retry_concurrency` retries at once in the whole fleet, and these come first.

    Fresh work has everything else, so retries can neither crowd it out nor be crowded out by it.
    """

    retry_concurrency: int = 1

    def __post_init__(self) -> None:
        given = self.retry_concurrency
        if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= SLOTS_MAX:
            raise BadSetting(f"retry_concurrency must be a whole number from 1 to {SLOTS_MAX:,}, not {shown(given)}")


Strategy = Weighted | RetryFirst | FreshFirst | Fifo | Separate
STRATEGIES: dict[str, type[Strategy]] = {
    "weighted": Weighted,
    "retry_first": RetryFirst,
    "fresh_first": FreshFirst,
    "fifo": Fifo,
    "separate": Separate,
}


def name_of_strategy(strategy: Strategy) -> str:
    """A strategy as people write it: weighted(0.2), retry_first, separate(5)."""
    name = next(name for name, kind in STRATEGIES.items() if isinstance(strategy, kind))
    if isinstance(strategy, Weighted):
        return f"{name}({strategy.retry_share})"
    return f"{name}({strategy.retry_concurrency})" if isinstance(strategy, Separate) else name


def read_strategy(text: str) -> Strategy:
    """A strategy from its name, with its number in brackets where it takes one."""
    name, _, number = text.strip().replace("-", "_").rstrip(")").partition("(")
    kind = STRATEGIES.get(name)
    if kind is None:
        raise BadSetting(f"claim must be one of {', '.join(STRATEGIES)}, such as weighted(0.2) or separate(5), not {shown(text)}")
    try:
        if not number:
            return kind()
        if kind is Weighted:
            return Weighted(float(number))
        if kind is Separate:
            return Separate(int(number))
    except ValueError:
        pass
    raise BadSetting(f"{name} takes {'a number' if kind in (Weighted, Separate) else 'no number'}: {shown(text)} is not one")
