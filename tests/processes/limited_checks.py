"""The checks that a history of runs must pass: never too many at once, never too many over time, nobody while a breaker is open.

They know nothing of the queue: only the runs of the ledger, the numbers of the limits, and the jobs as they are in the end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from mulligan.core.job import Job
from tests.processes.limited_history import Run

UNITS = 1_000_000_000_000  # of a token: a rate in millionths of a token a second times microseconds is whole


class Crowd(NamedTuple):
    """At most so many runs at once of those that `group` gives the same name; None: not concerned."""

    name: str
    most: int
    group: Callable[[Run], str | None]


class Stream(NamedTuple):
    """Of the claims that `draws` gives the same name, in every stretch of time at most burst + per_s a second + ratio of those that pay."""

    name: str
    burst: int
    per_s: float
    draws: Callable[[Run], str | None]
    ratio: float = 0.0
    pays: Callable[[Run], str | None] = lambda run: None


class Unseen(NamedTuple):
    """A claim of which the store knows but not the ledger: its process was killed before it had the answer."""

    run: Run
    after_us: int
    before_us: int  # by the store's clock, like the one above


class Finding(NamedTuple):
    """What a check found: problems, and how near to the limit it came, as a sign that the limit was felt at all."""

    problems: list[str]
    peak: float


def check_crowd(crowd: Crowd, runs: Iterable[Run]) -> Finding:
    """Never more at once than there are slots. The peak is the greatest number there was in any group."""
    turns: dict[str, list[tuple[int, int, Run]]] = defaultdict(list)
    for run in runs:
        name = crowd.group(run)
        if name is not None:
            for begin_us, end_us in run.intervals():
                turns[name] += [(begin_us, 1, run), (end_us, -1, run)]
    problems, peak = [], 0
    for name, events in sorted(turns.items()):
        held: set[tuple[str, int]] = set()
        for at_us, change, run in sorted(events, key=lambda event: event[:2]):  # an end comes before a beginning
            (held.add if change > 0 else held.discard)((run.job, run.fence))
            peak = max(peak, len(held))
            if change > 0 and len(held) > crowd.most:
                problems.append(f"{crowd.name} {name}: {len(held)} at once, {crowd.most} allowed, at {at_us}: {sorted(held)}")
    return Finding(problems, peak)


def check_stream(stream: Stream, runs: Iterable[Run], unseen: Sequence[Unseen] = ()) -> Finding:
    """Never more starts than tokens, judged by the store's times of the claims.

    Plays a bucket that is never emptier than the real one may be: whole claims at once, what pays first. It is in debt exactly if some
    stretch of time has too many starts. An unseen claim may have paid at any moment of its time, so a debt of that much is none while
    it lasts. The peak is the greatest share of the burst that was taken at once.
    """
    claims: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    for run in runs:
        if (name := stream.draws(run)) is not None:
            claims[name][run.claimed_us][0] += 1
        if (name := stream.pays(run)) is not None:
            claims[name][run.claimed_us][1] += 1
    for claim in unseen:
        if (name := stream.pays(claim.run)) is not None:
            claims[name][claim.before_us][1] += 1
    burst, rate_u, share = stream.burst * UNITS, round(stream.per_s * 1_000_000), round(stream.ratio * UNITS)
    problems, peak = [], 0.0
    for name, moments in sorted(claims.items()):
        level, last_us = burst, min(moments)
        for at_us, (drawn, paid) in sorted(moments.items()):
            level = min(burst, level + (at_us - last_us) * rate_u) + paid * share - drawn * UNITS
            last_us = at_us
            doubtful = sum(stream.pays(one.run) == name and one.after_us <= at_us < one.before_us for one in unseen)
            peak = max(peak, 1 - level / burst)
            if level + doubtful * share < 0:
                problems.append(f"{stream.name} {name}: {-level / UNITS:.3f} tokens too many were taken by {at_us}")
                level = 0
    return Finding(problems, peak)


def check_silence(downstream: str, runs: Iterable[Run], begin_us: int, end_us: int) -> list[str]:
    """Nothing that depends on the downstream starts in this time, on the machine's clock."""
    return [
        f"{run.job} started at {run.started_us}, and its breaker was open from {begin_us} to {end_us}"
        for run in runs
        if run.on == downstream and run.started_us is not None and begin_us <= run.started_us <= end_us
    ]


def check_ends(jobs: Sequence[Job], wanted: set[str], runs: Iterable[Run], *, max_crashes: int) -> list[str]:
    """No job is lost or made up; each is done by a run that ended well, or has failed when its policy was exhausted."""
    found = {job.id: job for job in jobs}
    problems = [f"lost: {job_id}" for job_id in sorted(wanted - found.keys())]
    problems += [f"not asked for: {job_id}" for job_id in sorted(found.keys() - wanted)]
    by_job: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        by_job[run.job].append(run)
    for job in jobs:
        executions_max = (job.max_retries or 0) + 1
        started = [run for run in by_job[job.id] if run.started_us is not None]
        if job.attempts > executions_max or len(started) > job.attempts + job.releases:
            problems.append(f"{job.id} ran too often: {job.attempts} attempts, {len(started)} starts, {executions_max} allowed")
        if job.status == "done":
            if not any(run.fence == job.fence and run.outcome == "ok" for run in started):
                problems.append(f"{job.id} is done, and its last run did not end well")
        elif job.status != "failed":
            problems.append(f"{job.id} is still {job.status}")
        elif job.attempts < executions_max and job.crashes < max_crashes:
            problems.append(f"{job.id} failed before its time: {job.attempts} attempts, {job.crashes} crashes")
    return problems
