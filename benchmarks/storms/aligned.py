"""An aligned failure: a thousand calls under way fail at one moment, and go on failing. When do their retries come?

The calls have a slot each, so that nothing but the policy spreads the retries. What the policy alone gives is drawn apart, from many
jobs on paper: after each failure a delay of the policy, then a call that fails after the same time. Chance makes one run of a thousand
jobs uneven, so several seeds are summed, and a bin with few retries is allowed five standard deviations where that is more than 1.2x.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from random import Random

from benchmarks.storms.stage import PATIENT, Figure, Outcome, Stage, lost, staged

from mulligan import Queue, RetryBudget, RetryPolicy
from mulligan.sim.arrivals import at_once
from mulligan.sim.chart import Chart
from mulligan.sim.durations import fixed
from mulligan.sim.figures import most_within, per_bin
from mulligan.sim.play import play
from mulligan.sim.recorder import Recorder
from mulligan.sim.service import Breakdown, Outage, Service

BREAK_S = 30.0
REFUSED_S = 0.05
BIN_S = 10.0
BUDGET = RetryBudget(per_s=20, burst=20)


def run(jobs: int, down_s: float, *, seed: int, budget: RetryBudget | None = None, retry: RetryPolicy = PATIENT) -> Recorder:
    """So many jobs under way at the break; calls are refused for down_s after it."""

    async def scene(stage: Stage) -> Recorder:
        stage.app.queues(Queue("default", budget=budget))
        down = Outage(start_s=BREAK_S, end_s=BREAK_S + down_s, takes=fixed(REFUSED_S))
        task = stage.task(Service(fixed(60.0), stage.rng("service"), [Breakdown(BREAK_S), down]))
        await play(stage.app, stage.recorder, stage.feed(at_once(jobs, 0), task), concurrency=jobs)
        return stage.recorder

    return staged(scene, seed=seed, retry=retry)


def retry_times(recorder: Recorder) -> list[float]:
    """When retries started, from the break on."""
    return [run.start_s - BREAK_S for run in recorder.runs if run.lane == "retry"]


def on_paper(samples: int, down_s: float, end_s: float) -> list[float]:
    """How many retries of one job the policy puts into each bin after the break, on average."""
    rng, policy = Random(0), PATIENT.filled()
    starts = []
    for _ in range(samples):
        time_s, failures, delay_s = 0.0, 1, None
        while True:
            delay_s, _ = policy.choose(failures, rng, delay_s)
            time_s += delay_s
            starts.append(time_s)
            if time_s >= down_s:
                break
            time_s += REFUSED_S
            failures += 1
    return [count / samples for count in per_bin(starts, BIN_S, 0, end_s)]


class Comparison:
    """Retries started in each bin, summed over several runs, beside what the policy gives on paper."""

    def __init__(self, recorders: Sequence[Recorder], jobs: int, down_s: float, samples: int) -> None:
        self.end_s = 3 * down_s
        self.expected = [share * jobs * len(recorders) for share in on_paper(samples, down_s, self.end_s)]
        self.started = per_bin((time_s for recorder in recorders for time_s in retry_times(recorder)), BIN_S, 0, self.end_s)
        pairs = list(zip(self.started, self.expected, strict=True))
        # Where five standard deviations are less than a fifth, a bin shows more than chance.
        self.ratios = [count / wanted for count, wanted in pairs if 5 * sqrt(wanted) <= 0.2 * wanted]
        self.beyond = [count for count, wanted in pairs if count > max(1.2 * wanted, wanted + 5 * sqrt(wanted))]


def play_aligned(*, jobs: int = 1_000, seeds: int = 10, down_s: float = 300, samples: int = 100_000, seed: int = 1) -> Outcome:
    """Several seeds without a budget beside the policy on paper, and one with a budget."""
    recorders = [run(jobs, down_s, seed=seed + number) for number in range(seeds)]
    found = Comparison(recorders, jobs, down_s, samples)
    limited = run(jobs, down_s, seed=seed, budget=BUDGET)
    limited_times = retry_times(limited)
    allowed = (BUDGET.per_s or 0) * BIN_S + (BUDGET.burst or 0)
    figures = [
        Figure("fullest bin over what the policy gives", max(found.ratios, default=0.0), "x", 1.2),
        Figure("bins compared that way", len(found.ratios)),
        Figure("bins beyond 1.2x and beyond chance", len(found.beyond), "", 0),
        Figure("retries in the fullest 10 s, no budget", max(per_bin(retry_times(recorders[0]), BIN_S, 0, found.end_s))),
        Figure("retries in the fullest 10 s, budget of 20/s", most_within(limited_times, BIN_S), "", allowed),
        Figure("jobs given up or lost", sum(one.failed + lost(one) for one in [*recorders, limited]), "", 0),
    ]
    chart = Chart(
        f"{jobs:,} jobs fail at one moment: retries per 10 s", "seconds after the failure", "retries started per 10 s", log=True, floor=1
    )
    middles = [(number + 0.5) * BIN_S for number in range(len(found.expected))]
    chart.line("what the policy gives", [(x, wanted / seeds) for x, wanted in zip(middles, found.expected, strict=True)])
    chart.line("started, average of all seeds", [(x, count / seeds) for x, count in zip(middles, found.started, strict=True)])
    chart.line(
        "started with a budget of 20/s",
        [(x, float(count)) for x, count in zip(middles, per_bin(limited_times, BIN_S, 0, found.end_s), strict=True)],
    )
    return Outcome(figures, {"aligned": chart.band(0, down_s, "every call fails")})
