"""Seeds: plays many worlds, adds up what they saw, and shrinks those in which an invariant does not hold."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import msgspec

from mulligan.sim.plan import JOBS, Setup
from mulligan.sim.world import Result, World

SHRUNK_MAX = 3  # violations that are shrunk in one campaign; the others are likely the same ones
TRIES_MAX = 120  # worlds played to shrink one
SPAN_MIN_S = 1.0
CHUNK = 10  # seeds handed to another process at once
# What the violations of an invariant come to, in the words of the checker of real runs.
COUNTED_AS = {
    "lost": ("S9", "L4"),
    "rerun": ("S6",),
    "phantom": ("S10", "S18"),
    "over_limit": ("S7", "S8", "S14"),
    "stale_accepted": ("S4", "S22"),
}


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """An invariant that does not hold, and the smallest world found that shows it."""

    seed: int
    rule: str
    told: str
    trace: list[str]  # the last events of the job, or of the world where it is about no single one
    setup: Setup
    jobs: int  # asked of the world that was played first

    @property
    def command(self) -> str:
        """What plays it again."""
        return f"mulligan torture --sim --seed {self.seed} --seeds 1" + ("" if self.jobs == JOBS else f" --jobs {self.jobs}")


class Tally(msgspec.Struct, kw_only=True):
    """What a campaign has seen."""

    seeds: int = 0
    jobs: int = 0
    events: int = 0
    virtual_s: float = 0.0
    cpu_s: float = 0.0
    faults: Counter[str] = msgspec.field(default_factory=Counter)
    checks: Counter[str] = msgspec.field(default_factory=Counter)
    ends: Counter[str] = msgspec.field(default_factory=Counter)
    broken: Counter[str] = msgspec.field(default_factory=Counter)
    violations: list[Violation] = []
    trace_hash: str = ""

    def add(self, result: Result) -> None:
        """One more world."""
        self.seeds += 1
        self.jobs += result.jobs
        self.events += result.events
        self.virtual_s += result.virtual_s
        self.cpu_s += result.cpu_s
        self.faults.update(result.faults)
        self.checks.update(result.checks)
        self.ends.update(result.ends)
        self.trace_hash = hashlib.blake2b((self.trace_hash + result.digest).encode(), digest_size=16).hexdigest()
        if (found := violation_of(result)) is not None:
            self.broken[found.rule] += 1
            self.violations.append(shrunk(found) if len(self.violations) < SHRUNK_MAX else found)

    def figures(self) -> dict[str, object]:
        """The numbers for a report."""
        counted = {name: sum(self.broken[rule] for rule in rules) for name, rules in COUNTED_AS.items()}
        return {
            "seeds": self.seeds,
            "jobs": self.jobs,
            "events": self.events,
            "virtual_s": round(self.virtual_s, 1),
            "faults": dict(sorted(self.faults.items())),
            "checks": dict(sorted(self.checks.items(), key=lambda item: (item[0][0] == "L", int(item[0][1:])))),
            "ends": dict(sorted(self.ends.items())),
            "violations": sum(self.broken.values()),
            **counted,
            "jobs_per_cpu_s": round(self.jobs / self.cpu_s, 1) if self.cpu_s else 0.0,
            "trace_hash": self.trace_hash,
        }


def play(seed: int, *, jobs: int = JOBS) -> Result:
    """One world."""
    return play_setup(Setup(seed=seed, jobs=jobs))


def play_setup(setup: Setup) -> Result:
    """One world, as it is asked for."""
    began_s = time.process_time()
    result = World(setup).run()
    result.cpu_s = time.process_time() - began_s
    return result


def violation_of(result: Result) -> Violation | None:
    """What a world showed; None if all held."""
    if not result.rule:
        return None
    setup = result.setup
    return Violation(seed=setup.seed, rule=result.rule, told=result.told, trace=result.trace, setup=setup, jobs=setup.jobs)


def first_violation(seeds: Iterable[int] = range(1_000), *, jobs: int = JOBS, budget_s: float | None = None) -> Violation | None:
    """Plays the seeds in order until an invariant does not hold, or the time is over."""
    end_s = None if budget_s is None else time.monotonic() + budget_s
    for seed in seeds:
        found = violation_of(play(seed, jobs=jobs))
        if found is not None:
            return found
        if end_s is not None and time.monotonic() > end_s:
            return None
    return None


def campaign(seeds: range, *, jobs: int = JOBS, processes: int = 1, step: Callable[[int], None] = lambda _: None) -> Tally:
    """Plays all the seeds, in their order or in several processes; `step` is told of each that is over. The tally is the same."""
    tally = Tally()
    setups = [Setup(seed=seed, jobs=jobs) for seed in seeds]
    if processes == 1:
        results: Iterator[Result] = map(play_setup, setups)
        for result in results:
            tally.add(result)
            step(1)
        return tally
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for result in pool.map(play_setup, setups, chunksize=CHUNK):
            tally.add(result)
            step(1)
    return tally


def shrunk(found: Violation, tries_max: int = TRIES_MAX) -> Violation:
    """The same violation in a smaller world: fewer jobs, fewer kinds of faults, a shorter time."""
    best, tried = found, {found.setup}
    while (smaller := _first_smaller(best, tried, tries_max)) is not None:
        best = smaller
    return msgspec.structs.replace(best, jobs=found.jobs)


def _first_smaller(best: Violation, tried: set[Setup], tries_max: int) -> Violation | None:
    for setup in _smaller(best.setup):
        if setup in tried:
            continue
        if len(tried) > tries_max:
            return None
        tried.add(setup)
        again = violation_of(play_setup(setup))
        if again is not None and again.rule == best.rule:
            return again
    return None


def _smaller(setup: Setup) -> Iterator[Setup]:
    """Worlds that are smaller by something, those that save most first."""
    faults = sorted(setup.faults)
    for parts in (2, 4, 8):
        size = -(-len(faults) // parts)
        for first in range(0, len(faults), size or 1):
            yield msgspec.structs.replace(setup, faults=setup.faults - set(faults[first : first + size]))
    for jobs in (setup.jobs // 4, setup.jobs // 2):
        if jobs > 0:
            yield msgspec.structs.replace(setup, jobs=jobs)
    if setup.span_s / 2 >= SPAN_MIN_S:
        yield msgspec.structs.replace(setup, span_s=setup.span_s / 2)
    for fault in faults:
        yield msgspec.structs.replace(setup, faults=setup.faults - {fault})
    if setup.jobs > 1:
        yield msgspec.structs.replace(setup, jobs=setup.jobs - 1)
