"""`python -m benchmarks.claimers`: 1 to 16 claimers on one queue of each store, then real workers of several processes.

Exit code 1 if a job was claimed twice, was lost, or could not be settled by its holder.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.claimers.claimer import TOTAL
from benchmarks.claimers.contest import contest
from benchmarks.claimers.report import as_markdown, as_text, uneven, wrong
from benchmarks.claimers.scaleup import scale_up
from benchmarks.growth.page import publish
from benchmarks.growth.sites import STORES, Sites
from benchmarks.peers.noise import loop_ms, noise

TASKS = {"nothing": "nothing", "computes": "a millisecond of CPU"}
CPU_SHARE = 5  # jobs that compute are so many times fewer
T = TypeVar("T")


def say(text: str = "") -> None:
    """One line, at once; not into the output of --json."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def numbers(text: str) -> list[int]:
    """Whole numbers from 1, separated by commas."""
    found = [int(part) for part in text.split(",") if part.strip()]
    if not found or min(found) < 1:
        raise argparse.ArgumentTypeError("give numbers from 1, separated by commas")
    return found


def in_turns(things: list[T], rounds: int) -> Iterator[T]:
    """All of them in each round, another one first each time: what the machine does meanwhile meets all of them."""
    for number in range(rounds):
        first = number % max(1, len(things))
        yield from things[first:] + things[:first]


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.claimers", description="Contention between claimers, and scale-up of workers."
    )
    made.add_argument("--store", choices=STORES, action="append", help="only this one; may be repeated (default: all)")
    made.add_argument("--claimers", type=numbers, default=[1, 2, 4, 8, 16], metavar="A,B", help="processes that claim (default 1,2,4,8,16)")
    made.add_argument("--processes", type=numbers, default=[1, 2, 4], metavar="A,B", help="processes of a worker (default 1,2,4)")
    made.add_argument("--part", choices=("contests", "workers"), action="append", help="only this; may be repeated (default: both)")
    made.add_argument("--jobs", type=int, default=20_000, help="jobs of each run (default %(default)s); a fifth where they compute")
    made.add_argument("--rounds", type=int, default=3, help="how often everything is measured (default %(default)s)")
    made.add_argument("--json", action="store_true", help="print everything as JSON")
    made.add_argument("--out", type=Path, help="also write everything to this file, as JSON")
    made.add_argument(
        "--publish", type=Path, metavar="FILE", help="measure nothing; put the tables of such a file into docs/guide/growth.md"
    )
    return made


def measure(asked: argparse.Namespace) -> dict[str, Any]:
    """Everything that was asked for, in turns."""
    stores, parts = asked.store or list(STORES), asked.part or ["contests", "workers"]
    contests: dict[str, dict[str, list[dict[str, float]]]] = {}
    workers: dict[str, dict[str, dict[str, list[dict[str, float]]]]] = {}
    loops_ms: list[float] = []
    with Sites() as sites:
        for store in stores:
            if "contests" in parts:
                contests[store] = {str(claimers): [] for claimers in asked.claimers}
                for claimers in in_turns(asked.claimers, asked.rounds):
                    loops_ms.append(loop_ms())
                    contests[store][str(claimers)].append(contest(sites, store, claimers, asked.jobs))
                    say(f"{store}: {claimers} claimers: {contests[store][str(claimers)][-1]['jobs_per_s']:,.0f} jobs/s")
            if "workers" in parts:
                workers[store] = {task: {str(processes): [] for processes in asked.processes} for task in TASKS}
                for task, processes in in_turns([(task, processes) for task in TASKS for processes in asked.processes], asked.rounds):
                    loops_ms.append(loop_ms())
                    jobs = asked.jobs if task == "nothing" else max(1, asked.jobs // CPU_SHARE)
                    workers[store][task][str(processes)].append(scale_up(sites, store, processes, task, jobs))
                    say(f"{store}: {processes} processes, {task}: {workers[store][task][str(processes)][-1]['jobs_per_s']:,.0f} jobs/s")
    described = {"jobs": asked.jobs, "total": TOTAL, "rounds": asked.rounds, "tasks": TASKS, "machine": noise(loops_ms)}
    return {**described, "contests": contests, "workers": workers}


def main() -> int:
    """Measures, or publishes what was measured."""
    asked = parser().parse_args()
    if asked.publish is not None:
        publish("claimers", as_markdown(json.loads(asked.publish.read_text("utf-8"))))
        return 0
    result = measure(asked)
    if asked.out is not None:
        asked.out.write_text(json.dumps(result, indent=2) + "\n", "utf-8")
    sys.stdout.write((json.dumps(result) if asked.json else as_text(result)) + "\n")
    found = wrong(result)
    for line in [*found, *uneven(result)]:
        say(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
