"""Stretches of time: of outages, of pauses, of calls. Knows nothing of what they are about."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator


class Spans:
    """Stretches of time, in any order as they are added; read as few that do not overlap, in order."""

    __slots__ = ("_added", "_begins", "_ends")

    def __init__(self, spans: Iterable[tuple[int, int]] = ()) -> None:
        self._added = list(spans)
        self._begins: list[int] = []
        self._ends: list[int] = []

    def add(self, begin: int, end: int) -> None:
        """One more."""
        self._added.append((begin, end))

    def _settle(self) -> None:
        """Puts what was added among the others, so that each moment is in one of them at most."""
        both = sorted([*zip(self._begins, self._ends, strict=True), *self._added])
        self._added, self._begins, self._ends = [], [], []
        for begin, end in both:
            if self._ends and begin <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._begins.append(begin)
                self._ends.append(end)

    def pieces(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """What of them lies in this time."""
        if self._added:
            self._settle()
        place = bisect_right(self._ends, begin)
        while place < len(self._begins) and self._begins[place] < end:
            yield max(begin, self._begins[place]), min(end, self._ends[place])
            place += 1

    def touch(self, begin: int, end: int) -> bool:
        """Whether any of them lies in this time, at least in part."""
        return any(True for _ in self.pieces(begin, end))

    def ends_near(self, at: int, within: int) -> bool:
        """Whether one of them ended about then."""
        if self._added:
            self._settle()
        place = bisect_left(self._ends, at - within)
        return place < len(self._ends) and self._ends[place] <= at + within


def covered(begin: int, end: int, *kinds: Spans | None) -> int:
    """How much of this time lies in any of these spans, each moment counted once."""
    pieces = sorted(piece for spans in kinds if spans is not None for piece in spans.pieces(begin, end))
    total, reached = 0, begin
    for first, last in pieces:
        if last > reached:
            total += last - max(first, reached)
            reached = last
    return total
