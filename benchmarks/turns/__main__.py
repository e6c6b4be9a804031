"""`python -m benchmarks.turns before=FOLDER now=.`: drains by two or more states of the repository, in turns, on one server.

A machine is never twice the same: figures of two runs, or of two hours, say nothing about two states of the code. So a worker of each
state drains jobs that do nothing, or that fail, fail and succeed, again and again, one state after the other; each in a process and a
place of its own, and the first time, in which all is cold, does not count. A FOLDER is a checkout (`git worktree add FOLDER COMMIT`).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.profile.child import ATTEMPTS, URL_VARIABLE

from tests.servers import ServerFailed, fresh_url

STORES = ("sqlite", "postgres", "redis", "mongo")
HERE = Path(__file__).parents[2]


class Drain(NamedTuple):
    """What one drain took, in seconds."""

    cpu_s: float
    wall_s: float


class State(NamedTuple):
    """A state of the repository, and the place of its jobs."""

    name: str
    folder: Path
    url: str

    def run(self, *words: str) -> str:
        """The last line that a program of this state says. Its own engine, and the programs of the state that measures."""
        path = os.pathsep.join([str(self.folder / "src"), str(HERE)])
        command = [sys.executable, "-m", "benchmarks.profile.child", *words]
        variables = {**os.environ, "PYTHONPATH": path, URL_VARIABLE: self.url}
        answer = subprocess.run(command, capture_output=True, text=True, check=False, cwd=HERE, env=variables)
        if answer.returncode != 0:
            raise RuntimeError(f"{self.name} failed: {answer.stderr.strip()[-2_000:]}")
        return answer.stdout.splitlines()[-1]

    def drain(self, task: str, jobs: int) -> Drain:
        """Fills the place, and drains it."""
        self.run("fill", task, str(jobs))
        found = json.loads(self.run("plain"))
        return Drain(found["cpu_s"], found["wall_s"])


def turns(states: list[State], task: str, jobs: int, rounds: int) -> dict[str, list[Drain]]:
    """The drains of each state; another one begins each round."""
    drains: dict[str, list[Drain]] = {state.name: [] for state in states}
    for number in range(rounds + 1):
        begin = number % len(states)
        for state in [*states[begin:], *states[:begin]]:
            drain = state.drain(task, jobs)
            if number:
                drains[state.name].append(drain)
    return drains


def lines(store: str, task: str, attempts: int, drains: dict[str, list[Drain]]) -> list[str]:
    """A line for each state: rate and processor time, and how many times the first state's they are."""
    told = []
    first = next(iter(drains.values()))
    for name, found in drains.items():
        rates = sorted(attempts / drain.wall_s for drain in found)
        rate, cpu_us = median(rates), median(drain.cpu_s for drain in found) / attempts * 1e6
        times = median(drain.wall_s for drain in first) / median(drain.wall_s for drain in found)
        reach = f"({rates[0]:,.0f} to {rates[-1]:,.0f})"
        told.append(f"{store:<9}{task:<6}{name:<12}{rate:>9,.0f}/s {reach:<20}{times:.2f}x  worker {cpu_us:.1f} us of CPU")
    return told


def state_of(word: str, url: str) -> State:
    """NAME=FOLDER."""
    name, _, folder = word.partition("=")
    if not (name and folder and (Path(folder) / "src" / "mulligan").is_dir()):
        raise SystemExit(f"turns: {word!r} is not NAME=FOLDER with a checkout in FOLDER")
    return State(name, Path(folder).resolve(), url)


def main(words: list[str] | None = None) -> int:
    """Measures the stores asked for; 0 if all of them could be."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.turns", description="States of the repository beside each other.")
    parser.add_argument("states", nargs="+", metavar="NAME=FOLDER", help="a checkout; the first is what the others are compared with")
    parser.add_argument("--store", choices=STORES, action="append", help="only this one; may be repeated (default: all)")
    parser.add_argument("--task", choices=ATTEMPTS, action="append", help="only this; may be repeated (default: both)")
    parser.add_argument("--jobs", type=int, default=20_000, help="in each drain; of those that fail, a quarter (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=6, help="that count (default %(default)s)")
    asked = parser.parse_args(words)
    failed = 0
    for store in asked.store or STORES:
        for task in asked.task or list(ATTEMPTS):
            jobs = max(1, asked.jobs // (4 if ATTEMPTS[task] > 1 else 1))
            with tempfile.TemporaryDirectory(prefix="turns-") as scratch:
                try:
                    urls = [f"sqlite:///{scratch}/{at}.db" if store == "sqlite" else fresh_url(store) for at in range(len(asked.states))]
                except ServerFailed as problem:
                    sys.stdout.write(f"{store}: not measured, {problem}\n")
                    failed += 1
                    break
                states = [state_of(word, url) for word, url in zip(asked.states, urls, strict=True)]
                found = turns(states, task, jobs, asked.rounds)
            sys.stdout.write("\n".join(lines(store, task, jobs * ATTEMPTS[task], found)) + "\n")
            sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
