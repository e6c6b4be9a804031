"""The claim ids the memory store remembers: a repeat of one must not take more."""

from __future__ import annotations

from collections import OrderedDict

from mulligan.core.clock import SECOND_US

CLAIM_MEMORY_US = 3_600 * SECOND_US  # how long a claim_id that took jobs is known


class Claims(OrderedDict[str, tuple[int, list[str]]]):
    """By claim_id: when it was made, and which jobs it took. Kept in the order of their making."""

    def remember(self, claim_id: str, ids: list[str], now_us: int) -> None:
        """Keeps a claim that took something, and forgets old ones."""
        while self and next(iter(self.values()))[0] < now_us - CLAIM_MEMORY_US:
            self.popitem(last=False)
        if ids:
            self[claim_id] = (now_us, ids)
