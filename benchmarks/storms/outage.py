"""An outage under a steady load: every call fails for an hour. What fresh work feels, and what the downstream gets.

Jobs arrive at random times (Poisson) and use 60 % of the slots. While the outage lasts, every call fails: "slow" after the time it would
have taken, "refused" after 20 ms. The default policy retries, often enough to survive.
"""

from __future__ import annotations

from typing import Literal

from benchmarks.storms.stage import Figure, Outcome, Stage, lost, staged

from mulligan import Queue, RetryFirst, Weighted
from mulligan.policy.lanes import Strategy
from mulligan.sim.arrivals import poisson
from mulligan.sim.chart import Chart
from mulligan.sim.durations import exponential, fixed
from mulligan.sim.figures import by_time, last_end_s, median_wait_s, peak_to_mean, per_bin, selected
from mulligan.sim.play import play
from mulligan.sim.recorder import Recorder
from mulligan.sim.service import Outage, Service

LOAD = 0.6
SERVICE_S = 1.0
BIN_S = 10.0
How = Literal["slow", "refused", "none"]


class Times:
    """When the outage begins and ends, and between which times it is looked at: without its first and its last twelfth."""

    def __init__(self, calm_s: float, outage_s: float) -> None:
        self.start_s, self.end_s = calm_s, calm_s + outage_s
        self.looked_at = (self.start_s + outage_s / 12, self.end_s - outage_s / 12)
        self.fed_s = self.end_s + calm_s


def run(how: How, strategy: Strategy, slots: int, times: Times, *, seed: int, drains: bool = True) -> Recorder:
    """One run; without `drains` it ends with the arrivals."""

    async def scene(stage: Stage) -> Recorder:
        stage.app.queues(Queue("default", claim=strategy))
        takes = fixed(0.02) if how == "refused" else None
        faults = [] if how == "none" else [Outage(start_s=times.start_s, end_s=times.end_s, takes=takes)]
        task = stage.task(Service(exponential(SERVICE_S), stage.rng("service"), faults))
        arrivals = poisson(LOAD * slots / SERVICE_S, 0, times.fed_s, stage.rng("arrivals"))
        until_s = None if drains else times.fed_s
        await play(stage.app, stage.recorder, stage.feed(arrivals, task), concurrency=slots, until_s=until_s)
        return stage.recorder

    return staged(scene, seed=seed)


def retries_per_bin(recorder: Recorder, times: Times) -> list[int]:
    """Retries started in each bin, while the outage is looked at."""
    return per_bin((run.start_s for run in recorder.runs if run.lane == "retry"), BIN_S, *times.looked_at)


def fresh_wait_s(recorder: Recorder, times: Times) -> float:
    """The median wait of fresh work that fell due while the outage is looked at."""
    start_s, end_s = times.looked_at
    return median_wait_s(run for run in recorder.runs if run.lane == "fresh" and start_s <= run.due_s < end_s)


def play_outage(*, slots: int = 30, slots_refused: int = 5, calm_s: float = 300, outage_s: float = 3_600, seed: int = 1) -> Outcome:
    """The outage under the default strategy in both forms, the same hour without it, and the same outage with retries first."""
    times = Times(calm_s, outage_s)
    without = run("none", Weighted(), slots, times, seed=seed)
    weighted = run("slow", Weighted(), slots, times, seed=seed)
    retry_first = run("slow", RetryFirst(), slots, times, seed=seed)
    refused = run("refused", Weighted(), slots_refused, times, seed=seed)
    refused_without = run("none", Weighted(), slots_refused, times, seed=seed)
    waits = {name: fresh_wait_s(recorder, times) for name, recorder in {"none": without, "slow": weighted, "first": retry_first}.items()}
    base_refused = fresh_wait_s(refused_without, times)
    figures = [
        Figure("peak to mean of retries per 10 s, slow", peak_to_mean(retries_per_bin(weighted, times)), "", 2.0),
        Figure("peak to mean of retries per 10 s, refused", peak_to_mean(retries_per_bin(refused, times)), "", 2.0),
        Figure("median wait of fresh work, no outage", waits["none"], "s"),
        Figure("median wait of fresh work, slow", waits["slow"], "s", max(1.3 * waits["none"], waits["none"] + SERVICE_S)),
        Figure("median wait of fresh work, refused", fresh_wait_s(refused, times), "s", max(1.3 * base_refused, base_refused + SERVICE_S)),
        Figure("median wait of fresh work, slow, retries first", waits["first"], "s"),
        Figure("jobs given up", sum(one.failed for one in (weighted, retry_first, refused)), "", 0),
        Figure("jobs lost", sum(lost(one) for one in (without, weighted, retry_first, refused, refused_without)), "", 0),
        Figure("executions", len(weighted.runs)),
        Figure("most executions of one job", max(run.attempt for run in weighted.runs)),
        Figure("all done, after the end of the outage", (last_end_s(weighted.runs) - times.end_s) / 60, "min"),
    ]
    return Outcome(figures, {"outage-rate": rate_chart(weighted, times), "outage-wait": wait_chart(without, weighted, retry_first, times)})


def rate_chart(recorder: Recorder, times: Times) -> Chart:
    """What is started in each bin, by lane."""
    end_s = times.fed_s + times.start_s
    chart = Chart("Starts per 10 s through the outage, default strategy", "minutes", "starts per 10 s")
    for lane in ("fresh", "retry"):
        counts = per_bin((run.start_s for run in selected(recorder.runs, lane=lane)), BIN_S, 0, end_s)
        chart.line("fresh work" if lane == "fresh" else "retries", [(number * BIN_S / 60, count) for number, count in enumerate(counts)])
    return chart.band(times.start_s / 60, times.end_s / 60, "every call fails")


def wait_chart(without: Recorder, weighted: Recorder, retry_first: Recorder, times: Times) -> Chart:
    """How long fresh work waits, minute by minute."""
    chart = Chart("How long fresh work waits (median of each minute)", "minutes, when it falls due", "seconds, from 1 ms", log=True)
    for name, recorder in (("no outage", without), ("weighted(0.2), the default", weighted), ("retry_first", retry_first)):
        fresh = selected(recorder.runs, lane="fresh")
        chart.line(name, [(time_s / 60, value) for time_s, value in by_time(fresh, median_wait_s)])
    return chart.band(times.start_s / 60, times.end_s / 60, "every call fails")
