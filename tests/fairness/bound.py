"""The fairness bound, measured: by how much the starts of any window fall short of a share.

Count one for every start of a lane and take its share off for every start at all. What a window of starts lacks is then the fall of that
count from its beginning to its end, so the worst of all windows is the deepest fall below the highest point so far: one pass, and the
bound is checked at every start. Shares are fractions, so nothing is rounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple


class Shortfall(NamedTuple):
    """The window that lacks most, and how many starts it lacks."""

    lacks: Fraction
    begin: int
    end: int  # behind its last start


class Worst(NamedTuple):
    """The worst window of each lane."""

    fresh: Shortfall
    retry: Shortfall

    @property
    def lacks(self) -> float:
        """What the worse of the two lacks."""
        return float(max(self.fresh.lacks, self.retry.lacks))


def shortfall(own: Iterable[bool], share: float) -> Shortfall:
    """The worst window of one claimant to a share, given for each start whether it was its own."""
    exact = exactly(share)
    each, unit = exact.numerator, exact.denominator
    excess = highest = deepest = 0
    top = begin = end = 0
    for place, is_own in enumerate(own, start=1):
        excess += unit - each if is_own else -each
        if excess >= highest:
            highest, top = excess, place
        elif highest - excess > deepest:
            deepest, begin, end = highest - excess, top, place
    return Shortfall(Fraction(deepest, unit), begin, end)


def worst(lanes: Sequence[str], retry_share: float) -> Worst:
    """The worst windows of both lanes of a queue, given the lane of each start."""
    return Worst(
        fresh=shortfall((lane == "fresh" for lane in lanes), 1 - exactly(retry_share)),
        retry=shortfall((lane == "retry" for lane in lanes), exactly(retry_share)),
    )


def check(lanes: Sequence[str], retry_share: float, claimers: int) -> Worst:
    """The worst windows, which must hold at least share x n - claimers starts of each lane; an AssertionError tells which does not."""
    found = worst(lanes, retry_share)
    for lane, share, window in (("fresh", 1 - exactly(retry_share), found.fresh), ("retry", exactly(retry_share), found.retry)):
        starts = window.end - window.begin
        held = sum(lanes[place] == lane for place in range(window.begin, window.end))
        assert window.lacks <= claimers, (
            f"the {starts} starts from number {window.begin} on hold {held} of the {lane} lane, {float(window.lacks):.2f} less than "
            f"its share of {float(share * starts):.2f}; {claimers} claimers may lack {claimers}"
        )
    return found


def exactly(share: float | Fraction) -> Fraction:
    """The share as it is written: 0.2 is one fifth."""
    return share if isinstance(share, Fraction) else Fraction(str(share))
