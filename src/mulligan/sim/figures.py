"""Figures: what a record comes to: rates, peaks, waits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import ceil
from statistics import median

from mulligan.sim.recorder import Run


def selected(runs: Iterable[Run], *, start_s: float = 0.0, end_s: float = float("inf"), **fields: object) -> list[Run]:
    """The runs that began between two times, with these values in their fields: lane="fresh", tenant="a"."""
    return [run for run in runs if start_s <= run.start_s < end_s and all(getattr(run, name) == value for name, value in fields.items())]


def per_bin(times_s: Iterable[float], bin_s: float, start_s: float, end_s: float) -> list[int]:
    """How many of the times fall into each bin between two times."""
    counts = [0] * ceil((end_s - start_s) / bin_s)
    for time_s in times_s:
        if start_s <= time_s < end_s:
            counts[int((time_s - start_s) / bin_s)] += 1
    return counts


def peak_to_mean(counts: Sequence[float]) -> float:
    """The fullest bin over the average one; 0 where all are empty."""
    return max(counts) * len(counts) / total if (total := sum(counts)) else 0.0


def most_within(times_s: Sequence[float], window_s: float) -> int:
    """The most of these rising times that fall into any window of that length, wherever it begins."""
    most = first = 0
    for place, time_s in enumerate(times_s):
        while time_s - times_s[first] >= window_s:
            first += 1
        most = max(most, place - first + 1)
    return most


def median_wait_s(runs: Iterable[Run]) -> float:
    """The median time between falling due and starting; 0 where there is no run."""
    waits = [run.wait_s for run in runs]
    return median(waits) if waits else 0.0


def times_to_done(runs: Iterable[Run], start_s: float = 0.0) -> list[float]:
    """From falling due for the first time to the end of the run that succeeded, of the jobs that first fell due from start_s on."""
    due_s: dict[int, float] = {}
    found = []
    for run in runs:
        first_s = due_s.setdefault(run.job, run.due_s)
        if run.ok and first_s >= start_s:
            found.append(run.end_s - first_s)
    return found


def last_end_s(runs: Iterable[Run]) -> float:
    """When the last run ended; 0 where there is none."""
    return max((run.end_s for run in runs), default=0.0)


def quantile(values: Iterable[float], share: float) -> float:
    """The value below which that share of all lies; 0 where there is none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def by_time(runs: Iterable[Run], value: Callable[[list[Run]], float], bin_s: float = 60.0) -> Iterator[tuple[float, float]]:
    """A value for the runs of each minute (or other bin), by when they fell due; with the middle of that time."""
    bins: dict[int, list[Run]] = {}
    for run in runs:
        bins.setdefault(int(run.due_s / bin_s), []).append(run)
    return (((place + 0.5) * bin_s, value(bins[place])) for place in sorted(bins))


def depth(runs: Iterable[Run], step_s: float) -> Iterator[tuple[float, int]]:
    """How many jobs waited for a retry, backing off or due, at each step of time; the last step lies behind the last run."""
    changes: list[tuple[float, int]] = []
    failed: dict[int, Run] = {}  # the last run of a job, if it failed
    last_s = 0.0
    for run in sorted(runs, key=lambda run: (run.job, run.attempt)):
        last_s = max(last_s, run.end_s)
        before = failed.pop(run.job, None)
        if before is not None:
            changes += [(before.end_s, 1), (run.start_s, -1)]
        if not run.ok:
            failed[run.job] = run
    changes.sort()
    waiting = place = 0
    for step in range(ceil(last_s / step_s) + 1):
        while place < len(changes) and changes[place][0] <= step * step_s:
            waiting += changes[place][1]
            place += 1
        yield step * step_s, waiting
