"""A dead downstream: what breaker and budget keep from it, and that everything drains when it is well again.

Every job depends on the one downstream, and jobs arrive at 60 % of what the slots can do. Three ways to be dead: "slow", where calls fail
after the time they would have taken, "refused", after 20 ms, and "hangs", after ten times as long, as time-outs do. The calls that
began while it was down are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from benchmarks.storms.stage import PATIENT, Figure, Outcome, Stage, lost, staged

from mulligan import Breaker, Downstream, RetryBudget, RetryPolicy
from mulligan.sim.arrivals import poisson
from mulligan.sim.chart import Chart
from mulligan.sim.durations import exponential, fixed
from mulligan.sim.figures import last_end_s, per_bin
from mulligan.sim.play import play
from mulligan.sim.recorder import Recorder
from mulligan.sim.service import Fault, Outage, Service

LOAD = 0.6
SERVICE_S = 1.0
HANG_S = 10.0
BIN_S = 10.0
NAME = "pay"
BUDGET = RetryBudget(ratio=0.2, min_per_s=1)
BARE = Downstream(NAME, breaker=None)
GUARDED = Downstream(NAME, budget=BUDGET)
# Judges by ten seconds instead of sixty, so that an outage is noticed sooner.
QUICK = Downstream(NAME, breaker=Breaker(window=10), budget=BUDGET)
# For calls that hang: no second probe while the first may still be under way.
SUITED = Downstream(NAME, breaker=Breaker(window=10, probe_every=HANG_S), budget=BUDGET)
How = Literal["slow", "refused", "hangs", "slow, Retry-After"]
# What is played: how it is dead, what guards it, and how many of the calls may be left, in per cent.
FORMS: dict[str, tuple[How, Downstream, float | None]] = {
    "slow": ("slow", GUARDED, 5.0),
    "slow, Retry-After": ("slow, Retry-After", GUARDED, 5.0),
    "slow, window=10": ("slow", QUICK, 5.0),
    "refused": ("refused", GUARDED, 5.0),
    "hangs": ("hangs", GUARDED, None),
    "hangs, window=10 and probe_every=10": ("hangs", SUITED, None),
}


def run(downstream: Downstream, faults: Sequence[Fault], slots: int, fed_s: float, *, seed: int, retry: RetryPolicy = PATIENT) -> Recorder:
    """One run, to the end of all jobs."""

    async def scene(stage: Stage) -> Recorder:
        stage.app.downstreams(downstream)
        task = stage.task(Service(exponential(SERVICE_S), stage.rng("service"), faults), depends_on=NAME)
        arrivals = poisson(LOAD * slots / SERVICE_S, 0, fed_s, stage.rng("arrivals"))
        await play(stage.app, stage.recorder, stage.feed(arrivals, task), workers=2, concurrency=slots // 2)
        return stage.recorder

    return staged(scene, seed=seed, retry=retry)


def outage(how: How, start_s: float, end_s: float) -> Outage:
    """The fault of one way to be dead."""
    takes = fixed(0.02) if how == "refused" else fixed(HANG_S) if how == "hangs" else None
    return Outage(start_s=start_s, end_s=end_s, takes=takes, retry_after_s=60.0 if how == "slow, Retry-After" else None)


def calls(recorder: Recorder, start_s: float, end_s: float) -> int:
    """Calls that began between two times."""
    return sum(1 for run in recorder.runs if start_s <= run.start_s < end_s)


def play_dead(
    *, slots: int = 10, calm_s: float = 300, outage_s: float = 600, forms: Sequence[str] = tuple(FORMS), seed: int = 1
) -> Outcome:
    """The outage in its forms, with and without breaker and budget; and with the default policy, which has three retries."""
    start_s, end_s, fed_s = calm_s, calm_s + outage_s, 2 * calm_s + outage_s
    figures: list[Figure] = []
    kept: dict[str, tuple[Recorder, Recorder]] = {}
    for form in forms:
        how, guarded, bound = FORMS[form]
        # A Retry-After holds jobs without a breaker too, so it is compared with a downstream that does not say anything.
        bare = "slow" if how == "slow, Retry-After" else how
        without = kept[bare][0] if bare in kept else run(BARE, [outage(bare, start_s, end_s)], slots, fed_s, seed=seed)
        with_both = run(guarded, [outage(how, start_s, end_s)], slots, fed_s, seed=seed)
        kept[form] = without, with_both
        made, left = calls(without, start_s, end_s), calls(with_both, start_s, end_s)
        figures += [
            Figure(f"calls while dead, {form}: without", made),
            Figure(f"calls while dead, {form}: with breaker and budget", left),
            Figure(f"calls while dead, {form}: with, in parts of without", 100 * left / made, "%", bound),
            Figure(f"most executions of one job, {form}: with breaker and budget", max(run.attempt for run in with_both.runs)),
            Figure(f"jobs not done in the end, {form}: with breaker and budget", with_both.failed + lost(with_both), "", 0),
            Figure(f"all done after the end of the outage, {form}", (last_end_s(with_both.runs) - end_s) / 60, "min"),
        ]
    figures += given_up(outage("slow", start_s, end_s), slots, fed_s, seed)
    chart = Chart("Calls to a downstream that is dead for ten minutes", "minutes", "calls per 10 s")
    for name, recorder in zip(("without", "with breaker and budget"), kept["slow"], strict=True):
        counts = per_bin((run.start_s for run in recorder.runs), BIN_S, 0, last_end_s(kept["slow"][1].runs))
        chart.line(name, [(number * BIN_S / 60, count) for number, count in enumerate(counts)])
    return Outcome(figures, {"dead": chart.band(start_s / 60, end_s / 60, "every call fails")})


def given_up(fault: Fault, slots: int, fed_s: float, seed: int) -> list[Figure]:
    """How many jobs are given up where a job has only the three retries of the default policy."""
    kinds = {"without": BARE, "breaker and budget": GUARDED, "breaker with window=10, and budget": QUICK}
    return [
        Figure(f"jobs given up with 3 retries, slow: {name}", run(kind, [fault], slots, fed_s, seed=seed, retry=RetryPolicy()).failed)
        for name, kind in kinds.items()
    ]
