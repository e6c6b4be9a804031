"""Start-up cost, guarded by counting modules: a stop-watch would be wrong on a busy machine, a count never is."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

# Each is a noticeable part of a start-up by itself, or the door to a crowd of others.
HEAVY = {
    "click",
    "concurrent.futures.process",
    "email",
    "html",
    "http",
    "huey",
    "jinja2",
    "multiprocessing",
    "pydoc",
    "pygments",
    "rich",
    "sqlite3",
    "unittest",
    "urllib.request",
    "xml",
}
# Modules of others: a heavy newcomer brings dozens. Ours are small, and are counted apart.
IMPORT_MODULES_MAX = 130
HELP_MODULES_MAX = 155
OWN_MODULES_MAX = 95

IMPORT = """
import json, sys
before = set(sys.modules)
import mulligan
mulligan.Mulligan
print(json.dumps(sorted(set(sys.modules) - before)))
"""
HELP = """
import json, sys
before = set(sys.modules)
from mulligan.cli import main
sys.argv = ["mulligan", "--help"]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def modules_of(script: str) -> set[str]:
    """The modules a fresh interpreter loads to run a script, whose last line of output is their list."""
    answer = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, check=False, timeout=50)
    assert answer.returncode == 0, answer.stderr
    return set(json.loads(answer.stdout.splitlines()[-1]))


def heavy_in(modules: set[str], allowed: frozenset[str] = frozenset()) -> set[str]:
    """The heavy modules among those loaded."""
    return (modules & HEAVY) - allowed


def ours(modules: set[str]) -> set[str]:
    """Those of this package."""
    return {name for name in modules if name.partition(".")[0] == "mulligan"}


def test_import_is_light() -> None:
    """`import mulligan`, with its main class, loads no store, no command line and nothing else that is heavy, and few modules in all."""
    modules = modules_of(IMPORT)
    assert "mulligan" in modules
    assert heavy_in(modules) == set()
    assert len(modules - ours(modules)) <= IMPORT_MODULES_MAX, sorted(modules - ours(modules))
    assert len(ours(modules)) <= OWN_MODULES_MAX, sorted(ours(modules))


def test_help_is_light() -> None:
    """`mulligan --help` loads click, but neither rich nor a store nor any command, and few modules in all."""
    modules = modules_of(HELP)
    assert "mulligan.cli" in modules
    assert heavy_in(modules, frozenset({"click"})) == set()
    assert {name for name in modules if name.startswith("mulligan.cli.")} <= {"mulligan.cli.group", "mulligan.cli.output"}
    assert len(modules - ours(modules)) <= HELP_MODULES_MAX, sorted(modules - ours(modules))


@pytest.mark.parametrize("name", ["sqlite3", "email"])
def test_a_heavy_module_is_noticed(name: str) -> None:
    """The count sees what a script loads, so the guards above can fail."""
    assert name in heavy_in(modules_of(IMPORT.replace("mulligan.Mulligan", f"import {name}")))
