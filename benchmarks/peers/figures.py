"""Figures of several rounds: median and spread, percentiles, and ratios in which more than 1 always means that mulligan is ahead."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple


class Kind(NamedTuple):
    """What a figure is."""

    words: str
    short: str
    more_is_better: bool | None  # None: it is told, but not compared


FIGURES = {
    "enqueue_per_s": Kind("enqueue, one awaited at a time, jobs/s", "one/s", True),
    "bulk_per_s": Kind("enqueue in bulk, jobs/s", "bulk/s", True),
    "drain_per_s": Kind("drain of no-op jobs by one worker, jobs/s", "drain/s", True),
    "rss_mb": Kind("memory of the worker after the drain, MB", "MB", False),
    "cpu_us_per_job": Kind("CPU of the worker per drained job, us", "us/job", False),
    "pickup_p50_ms": Kind("pick-up by an idle worker, median, ms", "p50 ms", False),
    "pickup_p99_ms": Kind("pick-up by an idle worker, 99 of 100, ms", "p99 ms", False),
    "idle_cpu_percent": Kind("CPU of the idle worker, percent of a core", "idle %", False),
    "idle_server_percent": Kind("CPU of the server while the worker is idle, percent of a core", "srv %", None),
    "storm_per_s": Kind("retry storm (fail, fail, succeed; due at once), attempts/s", "storm/s", True),
    "storm_wall_per_s": Kind("the same with the pauses of a peer that cannot try again at once, attempts/s", "wall/s", None),
    "lost": Kind("jobs lost by a kill -9", "lost", None),
    "twice": Kind("jobs started twice after a kill -9", "twice", None),
    "not_back": Kind("jobs not back within the limit after a kill -9", "stuck", None),
    "recovery_s": Kind("seconds from the kill -9 to the last job", "rec s", None),
}


class Summary(NamedTuple):
    """One figure over all rounds."""

    median: float
    low: float
    high: float

    @property
    def spread(self) -> float:
        """The distance from the lowest to the highest, as a part of the median."""
        return (self.high - self.low) / self.median if self.median else 0.0


def summary(values: Sequence[float]) -> Summary:
    """Median and extremes of at least one value."""
    return Summary(statistics.median(values), min(values), max(values))


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def ratio(name: str, ours: float, theirs: float) -> float | None:
    """How far mulligan is ahead (more than 1) or behind; None where that has no meaning."""
    better = FIGURES[name].more_is_better
    if better is None or not ours or not theirs:
        return None
    return ours / theirs if better else theirs / ours
