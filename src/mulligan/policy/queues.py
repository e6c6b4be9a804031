"""Queue: the settings of one queue, checked when made."""

from __future__ import annotations

import msgspec

from mulligan.core.codec import check_name
from mulligan.core.errors import BadSetting
from mulligan.policy.checks import shown
from mulligan.policy.lanes import Strategy, Weighted
from mulligan.policy.retry import RetryPolicy

HOLD_MAX_S = 3_600


class Queue(msgspec.Struct, frozen=True):
    """How the jobs of one queue are claimed and, unless their task says otherwise, retried."""

    name: str
    claim: Strategy = Weighted()
    retry: RetryPolicy | None = None
    hold_slot_up_to: float = 0.0  # a worker keeps its slot empty through a backoff of up to so many seconds
    concurrency: int | None = None  # for the whole fleet; not available yet
    max_inflight_retries: int | None = None  # for the whole fleet; not available yet

    def __post_init__(self) -> None:
        check_name(self.name, "queue")
        if not isinstance(self.claim, Strategy):
            raise BadSetting(
                f"queue {self.name}: claim must be Weighted(...), RetryFirst(), FreshFirst() or Fifo(), not {shown(self.claim)}"
            )
        if self.retry is not None and not isinstance(self.retry, RetryPolicy):
            raise BadSetting(f"queue {self.name}: retry must be a RetryPolicy, not {shown(self.retry)}")
        hold = self.hold_slot_up_to
        if isinstance(hold, bool) or not isinstance(hold, (int, float)) or not 0 <= hold <= HOLD_MAX_S:
            raise BadSetting(f"queue {self.name}: hold_slot_up_to must be a number of seconds from 0 to {HOLD_MAX_S}, not {shown(hold)}")
        # A limit that is not kept is worse than one that is refused.
        for limit in ("concurrency", "max_inflight_retries"):
            if getattr(self, limit) is not None:
                raise BadSetting(
                    f"queue {self.name}: {limit} is a limit for the whole fleet, which no store keeps yet; leave it out "
                    "(worker(concurrency=) limits one process)"
                )
