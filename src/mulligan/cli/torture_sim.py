"""`mulligan torture --sim`: plays seeds of the simulation, tells what was checked, and how to replay what failed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mulligan.cli.exits import NO, OK

if TYPE_CHECKING:
    from mulligan.sim.seeds import Tally, Violation

ALONE_MAX = 100  # seeds that are not worth a second process
PROCESSES_MAX = 2
SHOWN = 3  # violations that are told in full


def run_sim(seeds: int, first: int, jobs: int, *, as_json: bool) -> int:
    """Plays so many seeds from `first` on, each with so many jobs (0: as many as it takes); the exit code."""
    from mulligan.cli.output import emit, progress
    from mulligan.sim.plan import JOBS
    from mulligan.sim.seeds import campaign

    processes = 1 if seeds <= ALONE_MAX else min(PROCESSES_MAX, os.cpu_count() or 1)
    with progress(seeds, "simulating") as step:
        tally = campaign(range(first, first + seeds), jobs=jobs or JOBS, processes=processes, step=step)
    if as_json:
        failures = [
            {"seed": one.seed, "rule": one.rule, "told": one.told, "events": one.trace, "command": one.command} for one in tally.violations
        ]
        emit({**tally.figures(), "first": first, "failures": failures})
    else:
        _show(tally, first)
    return NO if tally.violations else OK


def _show(tally: Tally, first: int) -> None:
    from mulligan.cli.output import say, table

    figures = tally.figures()
    say(
        f"{tally.seeds:,} seeds from {first}: {tally.jobs:,} jobs, {tally.events:,} events in {tally.virtual_s:,.0f} simulated seconds; "
        f"{figures['jobs_per_cpu_s']:,} jobs per second of CPU"
    )
    say(f"trace hash {tally.trace_hash}")
    for title, counts in (("fault", figures["faults"]), ("check", figures["checks"])):
        assert isinstance(counts, dict)
        table((title, ">times"), [[name, f"{count:,}"] for name, count in counts.items()])
    for violation in tally.violations[:SHOWN]:
        _tell(violation)
    failed = len(tally.violations)
    say(f"{failed} violations" if failed else "no violation", style="red" if failed else "green")


def _tell(violation: Violation) -> None:
    from mulligan.cli.output import say

    setup = violation.setup
    say(f"seed {violation.seed}: {violation.rule}, {violation.told}", style="red", err=True)
    say(f"  smallest world: {setup.jobs} jobs, {setup.span_s:g} s, faults: {', '.join(sorted(setup.faults)) or 'none'}", err=True)
    for line in violation.trace:
        say(f"  {line}", err=True)
    say(f"  replay: {violation.command}", err=True)
