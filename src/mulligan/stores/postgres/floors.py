"""Where a claim may begin to look.

A job that was claimed leaves a dead entry in the index of due jobs. Vacuum removes those, unless some forgotten transaction still could
see them; then every claim steps over everything that was claimed since. So the store remembers, per line (queue, lane, priority), up to
which run_at the line was taken, and later claims begin there: at the floor.

A job behind the floor must not be forgotten:
- a floor is used only once it is LAG_US old, so that writes that were under way when it was learnt are seen by then;
- a job that is stored with a time in the past bumps a counter with its commit, and a claim that sees another count ignores all floors;
- a clock that goes back drops all floors, and once in FULL_EVERY_US a claim is made without them: whatever else may have put a job
  behind a floor (a claim that was rolled back late, a row edited by hand), the job waits no longer than that;
- a claim that ends behind the floor of a line may have left jobs there, and drops that floor: however many they are, claims go on there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mulligan.core.clock import SECOND_US
from mulligan.core.contract import Ask

LAG_US = SECOND_US
FULL_EVERY_US = 2 * SECOND_US
LINES_MAX = 10_000

Line = tuple[str, str | None, int]


class Floors:
    """The floors of one process. Touched by the home loop only."""

    def __init__(self) -> None:
        self._floors: dict[Line, int] = {}  # in use
        self._aging: dict[Line, int] = {}  # to be used once they are old enough
        self._growing: dict[Line, int] = {}  # to age next: whatever is in use was learnt at least one lag ago
        self._since_us = 0  # since when they grow
        self._full_us = 0  # when a claim was last made without floors
        self._now_us = 0
        self.bumps = -1  # the counter of writes into the past, as last seen

    def of(self, asks: Sequence[Ask]) -> list[int]:
        """Where to begin for each ask; 0: at the beginning."""
        if self._now_us - self._full_us >= FULL_EVERY_US:
            self._full_us = self._now_us
            return [0] * len(asks)
        return [self._floors.get((ask.queue, ask.lane, ask.priority), 0) for ask in asks]

    def learn(self, now_us: int, bumps: int, reached: Mapping[Line, int]) -> None:
        """Takes in what a claim found: its time, the counter, and up to where each line was taken."""
        if now_us < self._now_us or bumps != self.bumps or len(self._floors) > LINES_MAX:
            self._floors, self._aging, self._growing = {}, {}, {}
            self._since_us = self._full_us = now_us
        self._now_us, self.bumps = now_us, bumps
        if now_us - self._since_us >= LAG_US:
            self._floors |= self._aging
            self._aging, self._growing = self._growing, {}
            self._since_us = now_us
        for line, run_at_us in reached.items():
            if run_at_us < self._floors.get(line, 0):  # there may be more where that came from; rows are taken in order
                for known in (self._floors, self._aging, self._growing):
                    known.pop(line, None)
            self._growing[line] = max(run_at_us, self._growing.get(line, 0))
