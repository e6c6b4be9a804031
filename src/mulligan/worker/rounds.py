"""Rounds: whether claims that look at some groups at a time, one claim after the other, have gone round all of them."""

from __future__ import annotations

from collections.abc import Sequence

from mulligan.core.contract import Ask, Claimed
from mulligan.core.job import Lane


class Rounds:
    """Follows where the turns of each lane and level stand. One per fetcher."""

    def __init__(self) -> None:
        self._walks: dict[tuple[str, Lane | None, int], tuple[str, int]] = {}  # where each round began, and how often it passed the end

    def begin(self) -> None:
        """The next claim begins a new round: something was found, or there was a rest."""
        self._walks.clear()

    def is_complete(self, asks: Sequence[Ask], claimed: Claimed) -> bool:
        """Whether with this claim, too, every group was looked at since the round began. To be told of each claim of a round."""
        walks = [self._goes_on(ask, turn) for ask, turn in zip(asks, claimed.turns, strict=False)]
        return bool(walks) and all(walks)

    def _goes_on(self, ask: Ask, turn: str) -> bool:
        place = (ask.queue, ask.lane, ask.priority)
        start, ends = self._walks.get(place, (ask.after, 0))
        ends += turn <= ask.after  # groups are looked at in their order, and behind the last one comes the first
        self._walks[place] = (start, ends)
        return turn == ask.after or ends > 1 or (ends == 1 and turn >= start)
