"""Claim strategies: how a queue's share of a claim is split between fresh work and retries."""

from __future__ import annotations

import msgspec

from mulligan.core.errors import BadSetting
from mulligan.policy.checks import shown


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


Strategy = Weighted | RetryFirst | FreshFirst | Fifo
