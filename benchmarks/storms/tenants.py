"""Ten tenants, of whom one floods the queue: what the other nine feel, with turns by fair key, and without.

Three kinds of day. "backlog": each of the ten has a batch waiting, the flooding one a far larger one. "steady": small jobs at random
times, 60 % of the slots in all, and the flood on top. "batches": the same load in batches of 200. The flood succeeds, or it fails and
comes back as retries. One in twenty calls of everybody fails, so that the nine have retries too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from statistics import median
from typing import Literal, NamedTuple, get_args

from benchmarks.storms.stage import Figure, Outcome, Stage, staged

from mulligan.core.job import LANES, Lane
from mulligan.sim.arrivals import at_once, bursts, poisson
from mulligan.sim.chart import Chart
from mulligan.sim.durations import exponential
from mulligan.sim.figures import by_time, median_wait_s
from mulligan.sim.play import play
from mulligan.sim.recorder import Recorder, Run
from mulligan.sim.service import Fault, Outage, Poison, Service

TENANTS = 10
LOAD = 0.6
SLOTS = 10
SERVICE_S = 0.1
FLOODER = f"tenant {TENANTS - 1}"
FLOOD_S = 10.0  # when it comes
BATCH = 200
Kind = Literal["backlog", "steady", "batches"]
Flood = Literal["none", "succeeds", "fails"]


class Day(NamedTuple):
    """What was recorded until the end of a day, and how long the fresh jobs had waited that had not started by then, flood apart."""

    recorder: Recorder
    unstarted_s: list[float]

    def median_wait_s(self, lane: Lane) -> float:
        """The median wait of the nine others in one lane, of all that fell due once the flood had come."""
        waits = [run.wait_s for run in nine(self.recorder) if run.lane == lane and run.due_s >= FLOOD_S]
        waits += self.unstarted_s if lane == "fresh" else []
        return median(waits) if waits else 0.0


def run(
    kind: Kind,
    flood: Flood,
    flood_jobs: int,
    fed_s: float,
    *,
    until_s: float | None = None,
    backlog: int = 0,
    fair: bool = True,
    seed: int = 1,
) -> Day:
    """One day: jobs come until fed_s, and it ends then, or at until_s. With `fair`, each job has its tenant as fair key."""
    end_s = fed_s if until_s is None else until_s

    async def scene(stage: Stage) -> Day:
        faults: list[Fault] = [Outage(start_s=0, end_s=end_s, share=0.05)]
        if flood == "fails":
            faults.append(Poison(lambda job: job.task == "flood"))
        service = Service(exponential(SERVICE_S), stage.rng("service"), faults)
        tasks = {name: stage.task(service, name=name) for name in ("ordinary", "flood")}
        feeds = []
        for number in range(TENANTS):
            floods = f"tenant {number}" == FLOODER and flood != "none"
            task = tasks["flood" if floods else "ordinary"].options(fair_key=f"tenant {number}" if fair else None)
            times = at_once(flood_jobs, FLOOD_S) if floods else arrivals(kind, backlog, fed_s, stage.rng(f"tenant {number}"))
            feeds.append(stage.feed(times, task))
        # The flood goes first where it comes at the same moment as the others: the worse case.
        await play(stage.app, stage.recorder, *reversed(feeds), concurrency=SLOTS, until_s=end_s)
        return Day(stage.recorder, await stage.waiting_s(task="ordinary", lane="fresh"))

    return staged(scene, seed=seed, retry=None)


def arrivals(kind: Kind, backlog: int, until_s: float, rng: Random) -> Iterator[float]:
    """When the jobs of one ordinary tenant come."""
    per_s = LOAD * SLOTS / SERVICE_S / TENANTS
    if kind == "backlog":
        return at_once(backlog, FLOOD_S)
    return poisson(per_s, 0, until_s, rng) if kind == "steady" else bursts(BATCH, per_s / BATCH, 0, until_s, rng)


def nine(recorder: Recorder) -> list[Run]:
    """The runs of the nine others."""
    return [run for run in recorder.runs if run.task != "flood" and run.tenant != FLOODER]


def bound_s(kind: Kind, lane: Lane, alone_s: float) -> float | None:
    """What the median wait may come to beside a flood: twice as much; where hardly anybody waits without one, a service time more."""
    if kind == "batches":
        return None
    return 2 * alone_s if kind == "backlog" and lane == "fresh" else max(2 * alone_s, alone_s + SERVICE_S)


def play_tenants(
    *, flood_jobs: int = 100_000, backlog: int = 1_000, steady_s: float = 600, kinds: Sequence[Kind] = get_args(Kind), seed: int = 1
) -> Outcome:
    """Each kind of day without a flood, with one that succeeds, and with one that fails."""
    figures: list[Figure] = []
    chart = Chart(
        "How long nine tenants wait while the tenth floods the queue (steady day)",
        "minutes, when jobs fall due",
        "seconds, from 1 ms",
        log=True,
    )
    for kind in kinds:
        # A backlog is looked at for three times as long as it takes alone.
        until_s = FLOOD_S + 3 * backlog * TENANTS * SERVICE_S / SLOTS if kind == "backlog" else steady_s
        days = {flood: run(kind, flood, flood_jobs, until_s, backlog=backlog, seed=seed) for flood in get_args(Flood)}
        if kind == "steady":
            # Everybody waits for the end of the flood, so that day has to last until all who came have started.
            over_s = FLOOD_S + 1.1 * flood_jobs * SERVICE_S / SLOTS + 2 * until_s
            days["succeeds, no fair_key"] = run(kind, "succeeds", flood_jobs, until_s, until_s=over_s, fair=False, seed=seed)
            for flood, name in (("none", "no flood"), ("succeeds", "flood"), ("succeeds, no fair_key", "flood, and no fair_key")):
                fresh = [one for one in nine(days[flood].recorder) if one.lane == "fresh"]
                chart.line(name, [(time_s / 60, value) for time_s, value in by_time(fresh, median_wait_s)])
        for lane in LANES:
            alone_s = days["none"].median_wait_s(lane)
            for flood, day in days.items():
                is_bounded = flood in ("succeeds", "fails")
                name = f"median wait of the nine, {kind}, {lane} lane, flood: {flood}"
                figures.append(Figure(name, day.median_wait_s(lane), "s", bound_s(kind, lane, alone_s) if is_bounded else None))
    return Outcome(figures, {"tenants": chart})
