"""Jitter: the random part of a delay, so that jobs that failed together do not come back together."""

from __future__ import annotations

import re
from functools import lru_cache
from random import Random
from typing import Literal

import msgspec

from mulligan.core.errors import BadPolicy
from mulligan.policy.checks import SECONDS_MIN, shown

Kind = Literal["none", "full", "equal", "percent", "bounded", "decorrelated"]
PLAIN: tuple[Kind, ...] = ("none", "full", "equal", "bounded", "decorrelated")
_PERCENT = re.compile(r"percent\( *(\d{1,3}(?:\.\d{1,6})?) *\)")


class Jitter(msgspec.Struct, frozen=True):
    """One way to spread delays. Reads and writes as its name: none, full, equal, percent(25), bounded, decorrelated."""

    kind: Kind
    percent: float = 0

    def __str__(self) -> str:
        return f"percent({self.percent:g})" if self.kind == "percent" else self.kind

    def bounds(self, raw: float, start: float, ceiling: float, previous: float | None, clamp: bool) -> tuple[float, float]:
        """The shortest and the longest delay that can come of a raw one. `start` is the first raw delay, `previous` the one chosen last."""
        if self.kind == "full":
            return 0, raw
        if self.kind == "equal":
            return raw / 2, raw
        if self.kind == "percent":
            # The interval ends at the cap, instead of cutting what was drawn: that would send up to half of all jobs to one instant.
            high = raw * (1 + self.percent / 100)
            return raw * (1 - self.percent / 100), min(high, ceiling) if clamp else high
        if self.kind == "bounded":
            return start, max(start, raw)
        if self.kind == "decorrelated":
            return start, max(start, 3 * (start if previous is None else previous))
        return raw, raw

    def apply(self, raw: float, start: float, ceiling: float, previous: float | None, clamp: bool, rng: Random) -> float:
        """The delay to wait: drawn between the bounds, at least a millisecond, at most the ceiling.

        Only percent without clamp may exceed it: there the cap holds for the raw delay alone.
        """
        if self.kind == "none":
            return max(SECONDS_MIN, min(raw, ceiling))
        low, high = self.bounds(raw, start, ceiling, previous, clamp)
        drawn = low if low >= high else rng.uniform(low, high)
        return max(SECONDS_MIN, min(drawn, self._end(high, ceiling)))

    def longest(self, raw: float, start: float, ceiling: float, previous: float | None, clamp: bool) -> float:
        """The longest delay that apply can give."""
        return self._end(self.bounds(raw, start, ceiling, previous, clamp)[1], ceiling)

    def _end(self, high: float, ceiling: float) -> float:
        return high if self.kind == "percent" else min(high, ceiling)


def checked_jitter(given: object) -> str:
    """The name of a jitter as it is kept; BadPolicy for anything else."""
    if not isinstance(given, str):
        raise BadPolicy(f"jitter must be a name, such as 'full' or 'percent(25)', not {shown(given)}")
    return str(parse_jitter(given))


@lru_cache(maxsize=256)
def parse_jitter(text: str) -> Jitter:
    """The jitter of that name; BadPolicy for any other name, since silence would mean none."""
    for kind in PLAIN:
        if text == kind:
            return Jitter(kind)
    match = _PERCENT.fullmatch(text)
    if match is not None and 0 < float(match[1]) <= 100:
        return Jitter("percent", float(match[1]))
    raise BadPolicy(f"jitter must be one of {', '.join(PLAIN)} or percent(P) with P above 0 and up to 100, not {shown(text)}")
