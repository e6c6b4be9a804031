"""What jobs leave behind in a file: sums of many executions, or a record of each start and end. Read while it still grows."""

from __future__ import annotations

import struct
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

# The same as in adapters/jobs.py and adapters/jobs.js.
TRACE = struct.Struct("<IIQ")
SUMS = struct.Struct("<QQQQQ")
STARTED, FINISHED = 0, 1


class Sums(NamedTuple):
    """The executions of all processes together."""

    begun: int = 0
    total: int = 0  # of the numbers of the jobs
    first_ns: int = 0
    last_ns: int = 0

    def is_whole(self, jobs: int, attempts: int = 1) -> bool:
        """Whether these can be the executions of the jobs 0, 1, 2 ..., each as often as it should be."""
        return self.begun == jobs * attempts and self.total == attempts * jobs * (jobs - 1) // 2


class Death(NamedTuple):
    """What a kill did to the jobs 0, 1, 2 ..."""

    finished: int  # at least once
    twice: int  # started more than once
    missing: int  # never finished
    last_ns: int  # the last record


class Reader:
    """Reads the whole records that have been added to a file since it was last asked."""

    def __init__(self, path: Path, form: struct.Struct) -> None:
        self._path = path
        self._form = form
        self._offset = 0

    def more(self) -> list[tuple[int, ...]]:
        """The new ones; none while there is no file."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = len(data) - len(data) % self._form.size
        self._offset += whole
        return list(self._form.iter_unpack(data[:whole]))


class SumReader:
    """The present sums. Each process writes its own again and again; the last ones count."""

    def __init__(self, path: Path) -> None:
        self._reader = Reader(path, SUMS)
        self._latest: dict[int, tuple[int, ...]] = {}
        self.steps: list[Sums] = []  # the sums after each record, for whoever wants to know when nothing happened

    def read(self) -> Sums:
        """The sums of all processes, now."""
        for pid, *values in self._reader.more():
            self._latest[pid] = tuple(values)
            self.steps.append(self._added())
        return self.steps[-1] if self.steps else Sums()

    def _added(self) -> Sums:
        counts, totals, firsts, lasts = zip(*self._latest.values(), strict=True)
        return Sums(sum(counts), sum(totals), min(firsts), max(lasts))


def pauses_ns(steps: list[Sums], longer_ns: int) -> int:
    """How long nothing was begun, where that took longer than this. A job that follows a pause is told of at once, so the gap between
    two records in a row is the pause itself."""
    found = 0
    for before, after in pairwise(steps):
        gap = after.last_ns - before.last_ns
        if after.begun > before.begun and gap > longer_ns:
            found += gap
    return found


class TraceReader:
    """Starts and ends of single jobs."""

    def __init__(self, path: Path) -> None:
        self._reader = Reader(path, TRACE)
        self.starts: Counter[int] = Counter()
        self.ends: set[int] = set()
        self.first_start_ns: dict[int, int] = {}
        self.last_ns = 0

    def read(self) -> TraceReader:
        """Takes in what is new."""
        for number, what, at_ns in self._reader.more():
            if what == STARTED:
                self.starts[number] += 1
                self.first_start_ns.setdefault(number, at_ns)
            else:
                self.ends.add(number)
            self.last_ns = max(self.last_ns, at_ns)
        return self

    def death(self, jobs: int) -> Death:
        """What became of the jobs 0, 1, 2 ... up to this number."""
        wanted = range(jobs)
        finished = sum(number in self.ends for number in wanted)
        twice = sum(self.starts[number] > 1 for number in wanted)
        return Death(finished, twice, jobs - finished, self.last_ns)


def waits_ms(sent_ns: list[int], started_ns: dict[int, int]) -> list[float]:
    """How long each job waited; jobs are numbered in the order in which they were sent. KeyError if one never started."""
    return [(started_ns[number] - sent) / 1e6 for number, sent in enumerate(sent_ns)]
