"""`python -m benchmarks.profile`: where each microsecond of a job that does nothing goes, in the process of a worker with its defaults.
With `--task storm`, each of an attempt of a job that fails, fails and succeeds.

The processor time of the whole process, all its threads and drivers included, is measured without any instrument: that is the figure.
In further runs a sampler says where it goes (sampler.py); of those only the shares are used. Both in turns, on one store.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.growth.page import publish
from benchmarks.peers.noise import loop_ms
from benchmarks.profile.child import ATTEMPTS, URL_VARIABLE, fill
from benchmarks.profile.table import as_markdown, lines, profile_of

from tests.servers import ServerFailed, fresh_url

STORES = ("sqlite", "postgres", "redis", "mongo")
PAGE = Path(__file__).parents[2] / "docs" / "design" / "hot-path.md"


def say(text: str = "") -> None:
    """One line, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def measured(url: str, task: str, jobs: int, mode: str, *, observed: bool) -> dict[str, Any]:
    """One run of the worker's process."""
    asyncio.run(fill(url, task, jobs))
    command = [sys.executable, "-m", "benchmarks.profile.child", mode, "observed" if observed else ""]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, URL_VARIABLE: url})
    if answer.returncode != 0:
        raise RuntimeError(f"the measured worker failed: {answer.stderr.strip()[-2_000:]}")
    found: dict[str, Any] = json.loads(answer.stdout.splitlines()[-1])
    return found


def profiled(store: str, task: str, jobs: int, rounds: int, *, observed: bool) -> dict[str, Any]:
    """The profile of one store."""
    with tempfile.TemporaryDirectory(prefix="profile-") as folder:
        url = f"sqlite:///{folder}/jobs.db" if store == "sqlite" else fresh_url(store)
        measured(url, task, max(1, jobs // 10), "plain", observed=observed)  # the first one finds everything cold, and is not counted
        runs: dict[str, list[dict[str, Any]]] = {"plain": [], "sampled": []}
        for _ in range(rounds):
            for mode, found in runs.items():
                found.append(measured(url, task, jobs, mode, observed=observed))
    return profile_of(jobs * ATTEMPTS[task], runs["plain"], runs["sampled"])


def main(words: list[str] | None = None) -> int:
    """Profiles the stores asked for; 0 if all of them could be."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profile", description="Where the time of a worker goes, for each job.")
    parser.add_argument("--store", choices=STORES, action="append", help="only this one; may be repeated (default: all)")
    parser.add_argument("--task", choices=ATTEMPTS, default="noop", help="what the jobs do: nothing, or fail, fail and succeed")
    parser.add_argument("--jobs", type=int, default=20_000, help="to drain in each run (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="runs with and without the sampler (default %(default)s)")
    parser.add_argument("--observed", action="store_true", help="every event is made and heard, and a middleware surrounds every handler")
    parser.add_argument("--out", type=Path, help="also write all figures to this file, as JSON")
    parser.add_argument(
        "--publish",
        type=Path,
        nargs=2,
        metavar="FILE",
        help="measure nothing; put a file of an older state and one of this into hot-path.md",
    )
    asked = parser.parse_args(words)
    if asked.publish is not None:
        before, now = (json.loads(file.read_text("utf-8")) for file in asked.publish)
        publish(f"profile of {now['task']}", as_markdown(now, before), PAGE)
        return 0
    results: dict[str, Any] = {}
    loops = [loop_ms()]
    stores = asked.store or STORES
    for store in stores:
        try:
            results[store] = profiled(store, asked.task, asked.jobs, asked.rounds, observed=asked.observed)
        except ServerFailed as problem:
            say(f"{store}: not measured, {problem}")
            continue
        for line in lines(store, results[store]):
            say(line)
        say()
        loops.append(loop_ms())
    say(f"the machine: a fixed loop took {min(loops):.1f} to {max(loops):.1f} ms; the closer, the quieter it was")
    if asked.out is not None:
        asked.out.write_text(
            json.dumps({"loop_ms": loops, "task": asked.task, "observed": asked.observed, "stores": results}, indent=2) + "\n", "utf-8"
        )
    return 0 if len(results) == len(stores) else 1


if __name__ == "__main__":
    sys.exit(main())
