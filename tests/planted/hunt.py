"""Hunting one planted bug: the simulation with up to so many seeds, or the tests named for it, on a copy of the package that has it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.planted.bug import SOURCE, Bug, plant

ROOT = Path(__file__).parents[2]
SEEDS_MAX = 1_000
HUNT_MAX_S = 900.0
PASSED, FAILED = 0, 1  # pytest's exit codes when all tests have passed, and when some have failed and there was no other trouble

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


def hunt(bug: Bug, *, seeds: int = SEEDS_MAX, limit_s: float = HUNT_MAX_S) -> Catch:
    """Plants the bug and looks for it. Only a rule that is broken or a test that fails has caught it: nothing else is a catch."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        path = plant(bug, Path(folder))
        try:
            caught, by, tried = _by_tests(bug, path, limit_s) if bug.tests else _by_simulation(path, seeds, limit_s)
        except subprocess.TimeoutExpired:
            caught, by, tried = False, f"no answer within {limit_s:g} s", 0
    return Catch(bug.name, caught, by, tried, time.monotonic() - began)


def red_unplanted(bugs: Iterable[Bug], *, limit_s: float = HUNT_MAX_S) -> list[str]:
    """The tests named by these bugs that do not pass without any bug: they would catch whatever is planted."""
    red = []
    for tests, store in dict.fromkeys((bug.tests, bug.store) for bug in bugs if bug.tests):
        try:
            done = _pytest(tests, store, SOURCE, limit_s)
        except subprocess.TimeoutExpired:
            red.append(f"{' '.join(tests)} on {store}: no answer within {limit_s:g} s")
            continue
        if done.returncode != PASSED:
            red.append(f"{' '.join(tests)} on {store}: {_last_line(done.stdout) or _last_line(done.stderr)}")
    return red


def _by_simulation(path: Path, seeds: int, limit_s: float) -> tuple[bool, str, int]:
    code = HUNTER.format(first=1, seeds=seeds)
    done = _run(["-c", code], path, limit_s)
    if done.returncode != 0:  # no invariant was seen to be broken: what breaks the simulation itself may be anything
        return False, f"the simulation breaks down: {_last_line(done.stderr)}", 1
    answer = json.loads(done.stdout.splitlines()[-1])
    assert str(path) in answer["at"], "the copy was not the one that ran"
    seed = answer["seed"]
    return seed is not None, answer["rule"], seeds if seed is None else seed


def _by_tests(bug: Bug, path: Path, limit_s: float) -> tuple[bool, str, int]:
    done = _pytest(bug.tests, bug.store, path, limit_s)
    if done.returncode == FAILED:
        return True, next((line for line in done.stdout.splitlines() if line.startswith("FAILED")), "FAILED")[7:100], 0
    return False, f"pytest ended with {done.returncode}: {_last_line(done.stdout)}", 0


def _pytest(tests: Sequence[str], store: str, path: Path, limit_s: float) -> subprocess.CompletedProcess[str]:
    return _run(["-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", *tests], path, limit_s, MULLIGAN_TEST_BACKENDS=store)


def _run(arguments: list[str], path: Path, limit_s: float, **more: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": f"{path}{os.pathsep}{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"} | more
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, env=env, capture_output=True, text=True, timeout=limit_s, check=False)


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1][:120] if lines else ""
