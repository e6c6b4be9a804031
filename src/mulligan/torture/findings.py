"""What the checker has found: violations by the name of the check, with the job and a sentence each."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

EXAMPLES_MAX = 50
CHECKS = ("LOST", "PHANTOM", "RERUN", "OVERLAP", "FENCE", "ATTEMPTS", "EARLY", "EFFECT", "RECOVER", "WAKE", "STATE")


class Violation(NamedTuple):
    """One thing that must not be."""

    check: str
    job: str
    text: str


class Findings:
    """Counts all violations and keeps the first ones."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.figures: Counter[str] = Counter()  # counts of single kinds of violations, and of what is worth knowing
        self.examples: list[Violation] = []

    def add(self, check: str, job: str, text: str, figure: str = "") -> None:
        """One more."""
        assert check in CHECKS
        self.counts[check] += 1
        if figure:
            self.figures[figure] += 1
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(Violation(check, job, text))

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.counts.values())
