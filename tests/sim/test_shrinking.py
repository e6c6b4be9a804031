"""A failing seed is told with what it needs and no more, and the command that is printed plays it again."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from mulligan.cli import main
from mulligan.core.change import Change
from mulligan.core.job import Job
from mulligan.sim.plan import FAULTS, JOBS
from mulligan.sim.seeds import Violation, campaign, first_violation, play_setup, shrunk
from mulligan.stores import memory, memory_rows

FIELDS = {
    "seeds",
    "first",
    "jobs",
    "events",
    "virtual_s",
    "faults",
    "checks",
    "ends",
    "violations",
    "failures",
    "jobs_per_cpu_s",
    "trace_hash",
}
COUNTS = {"lost", "rerun", "phantom", "over_limit", "stale_accepted"}


def _settle_by_id_alone(patch: pytest.MonkeyPatch) -> None:
    """Whoever comes may settle a processing job, whatever its fence."""

    def is_held(row: Job, fence: int) -> bool:
        return row.status == "processing" and fence >= 0

    assert memory.MemoryStore  # imported before: what a module takes at its import while the patch is in force, it would keep
    patch.setattr(memory_rows, "is_held", is_held)


def _forget_attempts(row: Job, change: Change, now_us: int) -> Job:
    """Every settlement sets the attempts back."""
    return replace(memory_rows.settled(row, change, now_us), attempts=0)


def _found(monkeypatch: pytest.MonkeyPatch) -> Violation:
    _settle_by_id_alone(monkeypatch)
    found = first_violation(range(1, 60))
    assert found is not None
    return found


def test_a_planted_bug_is_found_and_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A smaller world shows the same rule broken, in which only the faults are left that it takes."""
    found = _found(monkeypatch)
    small = shrunk(found)
    assert found.rule == small.rule == "S4"
    assert small.setup.jobs <= JOBS
    assert len(small.setup.faults) <= 3 < len(FAULTS)
    assert play_setup(small.setup).rule == "S4"
    assert small.seed == found.seed
    assert small.trace


def test_a_bug_that_needs_no_faults_is_shown_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does it take forty jobs, or twelve seconds."""
    monkeypatch.setattr("mulligan.stores.memory.settled", _forget_attempts)
    found = first_violation(range(1, 2))
    assert found is not None
    small = shrunk(found)
    assert small.rule == found.rule == "S7"
    assert small.setup.faults == frozenset()
    assert small.setup.jobs <= 5
    assert small.setup.span_s < found.setup.span_s


def test_the_time_for_a_search_is_kept() -> None:
    """A search that has no time left ends after the seed it is at."""
    assert first_violation(range(10**9), jobs=2, budget_s=0.0) is None


def test_the_command_replays_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It fails with exit code 1, names the rule, shows the last events of the job, and prints itself."""
    found = _found(monkeypatch)
    program, *arguments = shlex.split(found.command)
    assert program == "mulligan"
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 1
    assert "S4" in done.output
    assert "claimed fence" in done.output
    assert f"replay: {found.command}" in done.output


def test_figures_as_json() -> None:
    """Everything a program wants to know, and exit code 0 where all held."""
    done = CliRunner().invoke(main, ["torture", "--sim", "--seeds", "2", "--seed", "3", "--json"])
    assert done.exit_code == 0, done.output
    told: dict[str, Any] = json.loads(done.output)
    assert set(told) >= FIELDS | COUNTS
    assert (told["seeds"], told["first"], told["violations"], told["failures"]) == (2, 3, 0, [])
    assert told["jobs_per_cpu_s"] > 0
    assert told["trace_hash"] == campaign(range(3, 5)).trace_hash


def test_jobs_can_be_asked_for() -> None:
    """--jobs says how many jobs each seed has; the replay says so too."""
    done = CliRunner().invoke(main, ["torture", "--sim", "--seeds", "1", "--jobs", "4"])
    assert done.exit_code == 0, done.output
    assert "no violation" in done.output


def test_a_failure_in_json_names_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failing seed is counted under what it comes to, with its rule, its events and its command."""
    monkeypatch.setattr("mulligan.stores.memory.settled", _forget_attempts)
    done = CliRunner().invoke(main, ["torture", "--sim", "--seeds", "1", "--json"])
    assert done.exit_code == 1
    told = json.loads(done.output)
    assert (told["violations"], told["over_limit"]) == (1, 1)
    assert told["failures"][0]["rule"] == "S7"
    assert told["failures"][0]["command"] == "mulligan torture --sim --seed 1 --seeds 1"
