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
    "crowd_per_s": Kind("enqueue by 100 callers at once, each awaiting its own, jobs/s", "crowd/s", True),
    "bulk_per_s": Kind("enqueue in bulk, jobs/s", "bulk/s", True),
    "drain_per_s": Kind("drain of no-op jobs by one worker, jobs/s", "drain/s", True),
    "drained": Kind("no-op jobs of that drain", "jobs", None),
    "rss_mb": Kind("memory of the worker after the drain, MB", "MB", False),
    "cpu_us_per_job": Kind("CPU of the worker per drained job, us", "us/job", False),
    "pickup_p50_ms": Kind("pick-up by an idle worker, median, ms", "p50 ms", False),
    "pickup_p99_ms": Kind("pick-up by an idle worker, 99 of 100, ms", "p99 ms", False),
    "load_per_s": Kind("arrivals at half of the capacity for arrivals, jobs/s", "load/s", None),
    "loaded_p50_ms": Kind("pick-up under that load, median, ms", "load p50", None),
    "loaded_p99_ms": Kind("pick-up under that load, 99 of 100, ms", "load p99", None),
    "idle_cpu_percent": Kind("CPU of the idle worker, percent of a core", "idle %", False),
    "idle_server_percent": Kind("CPU of the server while the worker is idle, percent of a core", "srv %", None),
    "storm_per_s": Kind("retry storm (fail, fail, succeed; due at once), attempts/s", "storm/s", True),
    "storm_wall_per_s": Kind("the same with the pauses of a peer that cannot try again at once, attempts/s", "wall/s", None),
    "one_process_per_s": Kind("jobs of 1 ms CPU by a supervisor with one process, jobs/s", "1 proc/s", None),
    "two_processes_per_s": Kind("the same by one with two processes, jobs/s", "2 proc/s", None),
    "two_processes_x": Kind("two processes compared with one", "2 proc x", None),
    "lost": Kind("jobs lost by a kill -9", "lost", None),
    "twice": Kind("jobs started twice after a kill -9", "twice", None),
    "not_back": Kind("jobs not back within the limit after a kill -9", "stuck", None),
    "recovery_s": Kind("seconds from the kill -9 to the last job", "rec s", None),
}
# What one table shows: all of it would be too wide for a screen.
GROUPS = (
    ("enqueue_per_s", "crowd_per_s", "bulk_per_s", "drain_per_s", "drained", "rss_mb", "cpu_us_per_job"),
    ("pickup_p50_ms", "pickup_p99_ms", "load_per_s", "loaded_p50_ms", "loaded_p99_ms", "idle_cpu_percent", "idle_server_percent"),
    (
        *("storm_per_s", "storm_wall_per_s", "one_process_per_s", "two_processes_per_s", "two_processes_x"),
        *("lost", "twice", "not_back", "recovery_s"),
    ),
)


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
