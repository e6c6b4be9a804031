"""Hunting one planted bug: the simulation with up to so many seeds, or the tests named for it, on a copy of the package that has it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.planted.bug import Bug, plant

ROOT = Path(__file__).parents[2]
SEEDS_MAX = 1_000
HUNT_MAX_S = 900.0
FAILED = 1  # pytest's exit code when tests have failed, and no other trouble

# Runs in a process of its own, with the copy first on its path; prints one line of JSON.
HUNTER = """
import json, mulligan, sys
from mulligan.sim.seeds import first_violation
found = first_violation(seeds=range({first}, {first} + {seeds}))
print(json.dumps({{"at": mulligan.__file__, "seed": None if found is None else found.seed, "rule": "" if found is None else found.rule}}))
"""


class Catch(NamedTuple):
    """What became of a hunt."""

    bug: str
    caught: bool
    by: str  # which rule or test saw it, or what went wrong
    seeds: int  # tried, the one that found it included; 0 where tests were asked
    took_s: float


def hunt(bug: Bug, *, seeds: int = SEEDS_MAX) -> Catch:
    """Plants the bug and looks for it."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        path = plant(bug, Path(folder))
        caught, by, tried = _by_tests(bug, path) if bug.tests else _by_simulation(path, seeds)
    return Catch(bug.name, caught, by, tried, time.monotonic() - began)


def _by_simulation(path: Path, seeds: int) -> tuple[bool, str, int]:
    code = HUNTER.format(first=1, seeds=seeds)
    done = _run(["-c", code], path)
    if done.returncode != 0:  # it did not even get so far as to answer; nobody would ship that, but it was seen
        return True, f"the engine breaks down: {_last_line(done.stderr)}", 1
    answer = json.loads(done.stdout.splitlines()[-1])
    assert str(path) in answer["at"], "the copy was not the one that ran"
    seed = answer["seed"]
    return seed is not None, answer["rule"], seeds if seed is None else seed


def _by_tests(bug: Bug, path: Path) -> tuple[bool, str, int]:
    done = _run(["-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", *bug.tests], path, MULLIGAN_TEST_BACKENDS=bug.store)
    if done.returncode == FAILED:
        return True, next((line for line in done.stdout.splitlines() if line.startswith("FAILED")), "FAILED")[7:100], 0
    return False, f"pytest ended with {done.returncode}: {_last_line(done.stdout)}", 0


def _run(arguments: list[str], path: Path, **more: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": f"{path}{os.pathsep}{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"} | more
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, env=env, capture_output=True, text=True, timeout=HUNT_MAX_S, check=False)


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1][:120] if lines else ""
