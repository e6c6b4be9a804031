"""From samples over time to a judgement: what grew after the start, and whether that is more than it may."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

WARM = 0.4  # the part of a run in which everything may still grow to its steady size
MB = 1_000_000


class Bound(NamedTuple):
    """How much a figure may grow between the middle and the end: by this part of it, and by this much in any case.

    With `below` it has a limit instead, which no sample may reach, from the first one on.
    """

    part: float = 0.0
    spare: float = 0.0
    below: float | None = None


BOUNDS = {
    "rss_mb": Bound(0.05, 3.0),
    "store": Bound(0.5, 4 * MB),  # files and tables grow in steps, and are cleaned up now and then
    "wal": Bound(below=64 * MB),  # a log that is not checkpointed grows for ever, and each reader has to look through it
    "keys": Bound(0.3, 500),
    "rows": Bound(0.3, 500),
    "waiting": Bound(0.5, 500),
}


class Growth(NamedTuple):
    """One figure: its steady size, its size at the end, its largest, and whether that is allowed."""

    name: str
    steady: float
    final: float
    largest: float
    is_fine: bool


def growth_of(name: str, samples: Sequence[float]) -> Growth:
    """Compares the median of the fifth after the warm-up with that of the last fifth, or every sample with the limit."""
    fifth = max(1, len(samples) // 5)
    begin = int(len(samples) * WARM)
    steady, final = median(samples[begin : begin + fifth]), median(samples[-fifth:])
    bound, largest = BOUNDS[name], max(samples)
    is_fine = final <= steady * (1 + bound.part) + bound.spare if bound.below is None else largest < bound.below
    return Growth(name, steady, final, largest, is_fine)
