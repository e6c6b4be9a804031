"""`python -m benchmarks.peers`: mulligan beside other queues, in one run, in turns. Exit code 1 if a peer could not be measured."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from benchmarks.peers.environments import Environment, environment
from benchmarks.peers.figures import Summary, summary
from benchmarks.peers.measures import Work, measured
from benchmarks.peers.noise import loop_ms, noise
from benchmarks.peers.places import Places
from benchmarks.peers.plan import MEASURES, Step, steps
from benchmarks.peers.programs import PeerFailed
from benchmarks.peers.roster import BEST, PEERS, ours
from benchmarks.peers.table import figures_table, ratio_table, shown

from tests.servers import ServerFailed

STORES = ("postgres", "redis", "sqlite")


def say(text: str = "") -> None:
    """One line, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class Run:
    """Everything that was found out in one run."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self.environments: dict[str, Environment] = {}
        self.rounds: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self.problems: list[str] = []
        self._failed: set[tuple[str, str]] = set()
        self.loops_ms: list[float] = []

    def equip(self, names: list[str]) -> list[str]:
        """Makes the environments; those that can be measured."""
        for name in names:
            try:
                self.environments[name] = environment(PEERS[name])
            except PeerFailed as problem:
                self._fail(f"{name}: not measured, {problem}")
        return [name for name in names if name in self.environments]

    def take(self, places: Places, step: Step) -> None:
        """One step. What goes wrong is told in a line, is not tried again, and the others go on."""
        if (step.peer, step.measure) in self._failed:
            return
        peer = PEERS[step.peer]
        self.loops_ms.append(loop_ms())
        try:
            with places.place(peer.store) as place:
                figures = measured(peer, self.environments[step.peer], place, self._work, step.measure)
        except (PeerFailed, ServerFailed, OSError) as problem:
            self._failed.add((step.peer, step.measure))
            self._fail(f"{step.peer}: {step.measure} not measured, {' '.join(str(problem).split())}")
            return
        for name, value in figures.items():
            self.rounds[step.peer][name].append(value)
        told = ", ".join(f"{name} {shown(value)}" for name, value in figures.items())
        say(f"round {step.round + 1}  {step.peer}: {told}  (loop {self.loops_ms[-1]:.1f} ms)")

    def summaries(self) -> dict[str, dict[str, Summary]]:
        """Medians and spreads, by peer and figure."""
        return {peer: {name: summary(values) for name, values in figures.items()} for peer, figures in self.rounds.items()}

    def _fail(self, line: str) -> None:
        self.problems.append(line)
        say(line)


def report(run: Run, names: list[str]) -> dict[str, Any]:
    """All of it, for a file."""
    return {
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version(), "system": platform.platform(terse=True)},
        "noise": noise(run.loops_ms),
        "problems": run.problems,
        "peers": {
            name: {
                "store": PEERS[name].store,
                "settings": PEERS[name].settings,
                "promises": PEERS[name].promises,
                "rounds": run.rounds[name],
                "figures": {figure: {**one._asdict(), "spread": one.spread} for figure, one in run.summaries().get(name, {}).items()},
            }
            for name in names
        },
    }


def show(run: Run) -> None:
    """The tables."""
    summaries = run.summaries()
    for store in STORES:
        peers = [name for name in PEERS if PEERS[name].store == store and name in summaries]
        if peers:
            say(f"\n{store}: medians, ± half the distance between the slowest and the fastest round")
            say(figures_table(summaries, peers))
            if compared := ratio_table(summaries, ours(store), peers):
                say(f"\n{store}: more than 1 means that mulligan is ahead")
                say(compared)
    found = noise(run.loops_ms)
    if found:
        say(
            f"\nmachine: a fixed loop took {found['median_ms']} ms (fastest {found['fastest_ms']}, slowest {found['slowest_ms']}); "
            f"{found['noisy_share']:.0%} of the steps began in a noisy moment"
        )
    if run.problems:
        say("\nnot measured:")
    for line in run.problems:
        say(f"  {line}")


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.peers", description="Measure mulligan beside other queues.")
    made.add_argument("--best", action="store_true", help="only mulligan and the fastest peers: " + ", ".join(BEST))
    made.add_argument("--peer", choices=list(PEERS), action="append", metavar="NAME", help="only this one; may be repeated")
    made.add_argument("--store", choices=STORES, action="append", help="only on this store; may be repeated")
    made.add_argument("--measure", choices=MEASURES, action="append", help="only this; may be repeated")
    made.add_argument("--rounds", type=int, default=3, help="how often everything is measured (default %(default)s; the kill once)")
    made.add_argument("--jobs", type=int, default=Work().jobs, help="no-op jobs of a drain, before a peer's share (default %(default)s)")
    made.add_argument("--back", type=float, default=Work().back_s, metavar="SECONDS", help="limit after a kill (default %(default)s)")
    made.add_argument("--out", type=Path, help="also write everything to this file, as JSON")
    made.add_argument("--list", action="store_true", help="tell who is measured, with which settings, and what each does not promise")
    return made


def main() -> int:
    """Measures what was asked for; 0 if everything could be measured, whatever came out."""
    asked = parser().parse_args()
    names = asked.peer or list(BEST if asked.best else PEERS)
    names = [name for name in names if not asked.store or PEERS[name].store in asked.store]
    if asked.list:
        for name in names:
            say(f"{name} ({PEERS[name].store}): {PEERS[name].settings}. {PEERS[name].promises}.")
        return 0
    scale = asked.jobs / Work().jobs
    base = Work()
    small = {"singles": base.singles, "storm": base.storm, "mortals": base.mortals, "pickups": base.pickups}
    less = {name: max(50, round(value * min(scale, 1))) for name, value in small.items()}
    run = Run(base._replace(jobs=asked.jobs, back_s=asked.back, **less))
    ready = run.equip(names)
    with Places() as places:
        for step in steps(ready, asked.measure or MEASURES, asked.rounds):
            run.take(places, step)
    show(run)
    if asked.out is not None:
        asked.out.write_text(json.dumps(report(run, ready), indent=2) + "\n", "utf-8")
    return 1 if run.problems else 0


if __name__ == "__main__":
    sys.exit(main())
