"""One run: the environments, the steps one after the other, and everything that was found out."""

from __future__ import annotations

import os
import platform
import shlex
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.environments import Environment, environment, version
from benchmarks.peers.figures import Summary, summary
from benchmarks.peers.measures import measured
from benchmarks.peers.noise import loop_ms, noise
from benchmarks.peers.places import Places
from benchmarks.peers.plan import Step
from benchmarks.peers.programs import PeerFailed
from benchmarks.peers.roster import PEERS
from benchmarks.peers.table import shown
from benchmarks.peers.targets import verdicts
from benchmarks.peers.work import Work

from tests.servers import ServerFailed

SAID_MAX = 400


class Run:
    """Everything that was found out in one run."""

    def __init__(self, work: Work, say: Callable[[str], None]) -> None:
        self._work = work
        self._say = say
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
            self._fail(f"{step.peer}: {step.measure} not measured, {' '.join(str(problem).split())[:SAID_MAX]}")
            return
        for name, value in figures.items():
            self.rounds[step.peer][name].append(value)
        told = ", ".join(f"{name} {shown(value)}" for name, value in figures.items())
        self._say(f"round {step.round + 1}  {step.peer}: {told}  (loop {self.loops_ms[-1]:.1f} ms)")

    def summaries(self) -> dict[str, dict[str, Summary]]:
        """Medians and spreads, by peer and figure."""
        return {peer: {name: summary(values) for name, values in figures.items()} for peer, figures in self.rounds.items()}

    def _fail(self, line: str) -> None:
        self.problems.append(line)
        self._say(line)


def command(arguments: Sequence[str]) -> str:
    """What was typed; of the file for the results only its name, as its folder is nobody's business."""
    shown = [Path(word).name if before == "--out" else word for before, word in zip(["", *arguments], arguments, strict=False)]
    return shlex.join(["python", "-m", "benchmarks.peers", *shown])


def report(run: Run, names: list[str], versions: Mapping[str, str]) -> dict[str, Any]:
    """All of it, for a file."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "command": command(sys.argv[1:]),
        "servers": dict(versions),
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version(), "system": platform.platform(terse=True)},
        "noise": noise(run.loops_ms),
        "problems": run.problems,
        "targets": [one._asdict() for one in verdicts(run.summaries())],
        "peers": {
            name: {
                "store": PEERS[name].store,
                "role": PEERS[name].role,
                "version": version(PEERS[name]),
                "settings": PEERS[name].settings,
                "promises": PEERS[name].promises,
                "rounds": run.rounds[name],
                "figures": {figure: {**one._asdict(), "spread": one.spread} for figure, one in run.summaries().get(name, {}).items()},
            }
            for name in names
        },
    }
