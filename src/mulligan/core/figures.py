"""Figures: what was counted of a queue's work, small enough to travel with a worker's report and to be added up over a fleet.

Definitions, which the docs repeat (docs/reference/numbers.md):
- A *wait* is the time from when a job fell due (run_at) to the start of its handler.
- A retry's *time saved* is the time between its start and the start of the last fresh job of the same queue and priority that had fallen
  due before it and yet started after it; 0 if there is none. In one line ordered by due time the retry would have started there.
- An execution has *succeeded* or *failed*; one that was snoozed, released or cancelled is neither. A crash is a failure.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from mulligan.core.clock import SECOND_US

ATTEMPTS_COUNTED = 10  # attempts are told apart up to this number; those beyond it are counted with it


class Figures(msgspec.Struct, kw_only=True, gc=False, omit_defaults=True):
    """Counts of one queue, over some span of time."""

    fresh_starts: int = 0
    retry_starts: int = 0
    fresh_wait_us: int = 0  # the waits of all of them together
    retry_wait_us: int = 0
    judged: int = 0  # retries of which it is known what they saved
    saved_us: int = 0  # and what that was, together
    succeeded: dict[int, int] = {}  # executions by attempt number
    failed: dict[int, int] = {}

    def add(self, other: Figures) -> None:
        """Takes in the counts of another."""
        self.fresh_starts += other.fresh_starts
        self.retry_starts += other.retry_starts
        self.fresh_wait_us += other.fresh_wait_us
        self.retry_wait_us += other.retry_wait_us
        self.judged += other.judged
        self.saved_us += other.saved_us
        for mine, theirs in ((self.succeeded, other.succeeded), (self.failed, other.failed)):
            for attempt, number in theirs.items():
                mine[attempt] = mine.get(attempt, 0) + number


class AttemptFigures(msgspec.Struct, frozen=True, kw_only=True):
    """How the executions of one attempt number ended."""

    succeeded: int
    failed: int
    success_rate: float


class FigureView(msgspec.Struct, frozen=True, kw_only=True):
    """Figures as people read them; None where nothing was counted."""

    fresh_starts: int
    retry_starts: int
    retry_share: float | None  # of all starts, those of retries: the share that was really served
    average_fresh_wait_s: float | None
    average_retry_wait_s: float | None
    retry_success_rate: float | None  # of the executions beyond the first attempt
    by_attempt: dict[str, AttemptFigures]  # "1", "2", ... "10+"
    time_saved_s: float  # by all retries that started before older fresh jobs
    average_time_saved_s: float | None  # per retry


def total(many: Iterable[Figures]) -> Figures:
    """All of them added up."""
    result = Figures()
    for one in many:
        result.add(one)
    return result


def view_of(figures: Figures) -> FigureView:
    """The figures with their averages and rates."""
    ok, bad = figures.succeeded, figures.failed
    retries_ok = sum(number for attempt, number in ok.items() if attempt > 1)
    retries_bad = sum(number for attempt, number in bad.items() if attempt > 1)
    return FigureView(
        fresh_starts=figures.fresh_starts,
        retry_starts=figures.retry_starts,
        retry_share=_ratio(figures.retry_starts, figures.fresh_starts + figures.retry_starts),
        average_fresh_wait_s=_ratio(figures.fresh_wait_us / SECOND_US, figures.fresh_starts),
        average_retry_wait_s=_ratio(figures.retry_wait_us / SECOND_US, figures.retry_starts),
        retry_success_rate=_ratio(retries_ok, retries_ok + retries_bad),
        by_attempt={_label(attempt): _attempt(ok.get(attempt, 0), bad.get(attempt, 0)) for attempt in sorted(ok.keys() | bad.keys())},
        time_saved_s=figures.saved_us / SECOND_US,
        average_time_saved_s=_ratio(figures.saved_us / SECOND_US, figures.judged),
    )


def _attempt(succeeded: int, failed: int) -> AttemptFigures:
    return AttemptFigures(succeeded=succeeded, failed=failed, success_rate=succeeded / max(1, succeeded + failed))


def _label(attempt: int) -> str:
    return f"{attempt}+" if attempt >= ATTEMPTS_COUNTED else str(attempt)


def _ratio(part: float, whole: int) -> float | None:
    return part / whole if whole else None
