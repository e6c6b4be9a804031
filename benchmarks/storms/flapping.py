"""A flapping downstream: down for 30 s, up for 90 s. What a breaker keeps from it, and what that costs.

Every job depends on it, and jobs arrive at 60 % of what the slots can do. A call that begins while it is down fails after the time it
would have taken. A breaker that stays open for long lets few calls fail, and misses the good times.
"""

from __future__ import annotations

from statistics import median

from benchmarks.storms.dead import BARE, BIN_S, NAME, run
from benchmarks.storms.stage import Figure, Outcome, lost

from mulligan import Breaker, Downstream
from mulligan.sim.chart import Chart
from mulligan.sim.figures import last_end_s, per_bin, times_to_done
from mulligan.sim.service import Flapping

# Quick to open, quick to trust, and never open for longer than at first.
BRIEF = Downstream(NAME, breaker=Breaker(window=10, open_for=10, open_max=10, probes=1, ramp=10))


def play_flapping(
    *, slots: int = 10, calm_s: float = 120, flapping_s: float = 960, down_s: float = 30, up_s: float = 90, seed: int = 1
) -> Outcome:
    """The same quarter of an hour without a breaker, with the default one, and with one that judges by ten seconds and is open for ten."""
    end_s = calm_s + flapping_s
    flaps = Flapping(start_s=calm_s, end_s=end_s, down_s=down_s, up_s=up_s)
    kinds = {"no breaker": BARE, "default breaker": Downstream(NAME), "breaker of 10 s": BRIEF}
    runs = {name: run(kind, [flaps], slots, end_s, seed=seed) for name, kind in kinds.items()}
    last_s = max(last_end_s(recorder.runs) for recorder in runs.values())
    figures = []
    chart = Chart(f"Calls to a downstream that is down for {down_s:g} s and up for {up_s:g} s in turn", "minutes", "calls per 10 s")
    for name, recorder in runs.items():
        figures += [
            Figure(f"calls that failed, {name}", sum(1 for run in recorder.runs if not run.ok)),
            Figure(f"median time to done of jobs that came while it flapped, {name}", median(times_to_done(recorder.runs, calm_s)), "s"),
            Figure(f"all done after the flapping, {name}", (last_end_s(recorder.runs) - end_s) / 60, "min"),
            Figure(f"jobs not done in the end, {name}", recorder.failed + lost(recorder), "", 0),
        ]
        counts = per_bin((run.start_s for run in recorder.runs), BIN_S, 0, last_s)
        chart.line(name, [(number * BIN_S / 60, count) for number, count in enumerate(counts)])
    return Outcome(figures, {"flapping": chart.band(calm_s / 60, end_s / 60, "flapping")})
