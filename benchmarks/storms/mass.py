"""Mass failures: first 100 jobs, then 100, then 1,000 fail three times each; and a worker vanishes with 1,000 jobs in its hands.

Beside them a steady stream of other jobs uses 60 % of the slots. It must hardly notice, and every job must be done in the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from benchmarks.storms.stage import Figure, Outcome, Stage, lost, staged

from mulligan.sim.arrivals import at_once, poisson
from mulligan.sim.chart import Chart
from mulligan.sim.durations import exponential, fixed
from mulligan.sim.figures import depth, last_end_s, median_wait_s, per_bin, selected
from mulligan.sim.play import play
from mulligan.sim.recorder import Recorder, Run
from mulligan.sim.service import Poison, Service

LOAD = 0.6
SERVICE_S = 0.5
LEASE_S = 30.0
BIN_S = 10.0


def batches(sizes: Sequence[int], slots: int, every_s: float, *, seed: int) -> Recorder:
    """The stream, and a batch of each size, one after the other. The jobs of a batch fail at once, three times, and then succeed."""

    async def scene(stage: Stage) -> Recorder:
        stream = stage.task(Service(exponential(SERVICE_S), stage.rng("stream")), name="stream")
        failing = Service(exponential(SERVICE_S), stage.rng("batch"), [Poison(lambda _: True, 3, fixed(0.05))])
        batch = stage.task(failing, name="batch").options(fair_key="batch")
        arrivals = poisson(LOAD * slots / SERVICE_S, 0, (len(sizes) + 3) * every_s, stage.rng("arrivals"))
        feeds = [stage.feed(at_once(size, every_s * (place + 1)), batch) for place, size in enumerate(sizes)]
        await play(stage.app, stage.recorder, stage.feed(arrivals, stream), *feeds, concurrency=slots)
        return stage.recorder

    return staged(scene, seed=seed, retry=None)


def vanished(jobs: int, slots: int, fed_s: float, *, seed: int) -> Recorder:
    """The stream, and a holder that claims so many jobs and is never heard of again."""

    async def scene(stage: Stage) -> Recorder:
        stuck = stage.task(Service(exponential(SERVICE_S), stage.rng("stuck")), name="stuck")
        stream = stage.task(Service(exponential(SERVICE_S), stage.rng("stream")), name="stream")
        await stage.app.enqueue_many([stuck.job() for _ in range(jobs)])
        if jobs:
            held = await stage.app.claim(limit=jobs, lease=LEASE_S)
            assert len(held) == jobs, "the holder was to take all of them"
        arrivals = poisson(LOAD * slots / SERVICE_S, 0, fed_s, stage.rng("arrivals"))
        await play(stage.app, stage.recorder, stage.feed(arrivals, stream), concurrency=slots)
        return stage.recorder

    return staged(scene, seed=seed, retry=None)


def play_mass(*, sizes: Sequence[int] = (100, 100, 1_000), slots: int = 10, every_s: float = 120, seed: int = 1) -> Outcome:
    """The failing batches, beside the same stream alone."""
    alone, failing = batches((), slots, every_s, seed=seed), batches(sizes, slots, every_s, seed=seed)
    start_s, end_s = every_s, len(sizes) * every_s + 3 * every_s
    quiet_s = fresh_wait_s(alone.runs, start_s, end_s)
    waiting = list(depth(failing.runs, BIN_S))
    figures = [
        Figure("median wait of the stream, alone", quiet_s, "s"),
        Figure("median wait of the stream beside the failures", fresh_wait_s(failing.runs, start_s, end_s), "s", bound_s(quiet_s)),
        Figure("longest time without a start of the stream, alone", longest_pause_s(alone.runs), "s"),
        Figure("longest time without a start of the stream, beside the failures", longest_pause_s(failing.runs), "s"),
        Figure("most jobs waiting to be retried", max(count for _, count in waiting)),
        Figure("jobs waiting to be retried in the end", waiting[-1][1], "", 0),
        Figure("jobs given up or lost", failing.failed + lost(failing), "", 0),
    ]
    named = ", ".join(f"{size:,}" for size in sizes)
    chart = Chart(f"Batches of {named} jobs fail three times each, beside a steady stream", "minutes", "jobs")
    chart.line("waiting to be retried", [(time_s / 60, count) for time_s, count in waiting])
    for name, task in (("stream: starts per 10 s", "stream"), ("batches: starts per 10 s", "batch")):
        counts = per_bin((run.start_s for run in selected(failing.runs, task=task)), BIN_S, 0, last_end_s(failing.runs))
        chart.line(name, [(number * BIN_S / 60, count) for number, count in enumerate(counts)])
    return Outcome(figures, {"mass": chart})


def play_vanished(*, jobs: int = 1_000, slots: int = 10, fed_s: float = 300, seed: int = 1) -> Outcome:
    """A worker that vanishes with its jobs, beside the same stream alone."""
    alone, gone = vanished(0, slots, fed_s, seed=seed), vanished(jobs, slots, fed_s, seed=seed)
    stuck = selected(gone.runs, task="stuck")
    start_s, end_s = LEASE_S, stuck[-1].start_s
    quiet_s = fresh_wait_s(alone.runs, start_s, end_s)
    figures = [
        Figure("first stuck job runs again after the end of its lease", stuck[0].start_s - LEASE_S, "s", 2.0),
        Figure("last stuck job runs again after the end of its lease", end_s - LEASE_S, "s"),
        Figure("most executions of a stuck job", max(run.attempt for run in stuck), "", 2),
        Figure("jobs given up, lost or done twice", gone.failed + lost(gone), "", 0),
        Figure("median wait of the stream, alone", quiet_s, "s"),
        Figure("median wait of the stream while they run", fresh_wait_s(gone.runs, start_s, end_s), "s", bound_s(quiet_s)),
    ]
    return Outcome(figures, {})


def bound_s(quiet_s: float) -> float:
    """How long the stream may wait beside failures: 1.3 times as long as alone, or a service time longer."""
    return max(1.3 * quiet_s, quiet_s + SERVICE_S)


def fresh_wait_s(runs: Sequence[Run], start_s: float, end_s: float) -> float:
    """The median wait of the stream's jobs that fell due between two times."""
    return median_wait_s(run for run in runs if run.task == "stream" and start_s <= run.due_s < end_s)


def longest_pause_s(runs: Sequence[Run]) -> float:
    """The longest time between two starts of the stream's jobs."""
    starts = [run.start_s for run in runs if run.task == "stream"]
    return max(later - earlier for earlier, later in pairwise(starts))
