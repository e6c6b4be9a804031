"""From samples over time to a judgement: what grew after the start, and whether that is more than it may."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

WARM = 0.4  # the part of a run in which everything may still grow to its steady size
MB = 1_000_000


class Bound(NamedTuple):
    """How much a figure may grow between the middle and the end: by this part of it, and by this much in any case."""

    part: float
    spare: float


BOUNDS = {
    "rss_mb": Bound(0.05, 3.0),
    "store": Bound(0.5, 4 * MB),  # files and tables grow in steps, and are cleaned up now and then
    "wal": Bound(1.0, 64 * MB),
    "keys": Bound(0.3, 500),
    "rows": Bound(0.3, 500),
    "waiting": Bound(0.5, 500),
}


class Growth(NamedTuple):
    """One figure: its steady size, its size at the end, and whether the step between is allowed."""

    name: str
    steady: float
    final: float
    is_fine: bool


def growth_of(name: str, samples: Sequence[float]) -> Growth:
    """Compares the median of the fifth after the warm-up with that of the last fifth."""
    fifth = max(1, len(samples) // 5)
    begin = int(len(samples) * WARM)
    steady, final = median(samples[begin : begin + fifth]), median(samples[-fifth:])
    bound = BOUNDS[name]
    return Growth(name, steady, final, final <= steady * (1 + bound.part) + bound.spare)
