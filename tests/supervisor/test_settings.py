"""The settings of a supervisor: checked before anything starts."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan import BadSetting
from mulligan.worker.supervisor_settings import SupervisorSettings
from tests.cli.commands import run_command


@pytest.mark.parametrize(
    "setting, value",
    [("processes", 0), ("processes", 257), ("processes", 1.5), ("kill_after", 0), ("kill_after", float("nan")), ("kill_after", True),
     ("max_jobs", 0), ("max_jobs", 2.5), ("max_memory", -1), ("max_memory", "1G")],
)  # fmt: skip
def test_an_impossible_setting_is_refused(setting: str, value: Any) -> None:
    """With its name and its bounds."""
    with pytest.raises(BadSetting, match=f"supervisor setting {setting} must be between"):
        SupervisorSettings(**{setting: value})


def test_a_store_that_processes_cannot_share_is_refused() -> None:
    """Each child would have a store of its own, and nobody's jobs."""
    answer = run_command("worker", "tests.supervisor.program:app", "--store", "memory://", "--processes", "2")
    assert answer.code == 2
    assert "lives and dies with one process" in answer.err


@pytest.mark.parametrize("option", ["--kill-after", "--max-jobs", "--max-memory"])
def test_what_only_a_supervisor_can_keep_needs_one(option: str) -> None:
    """Without --processes nobody would end or replace a process, so the command says so instead of promising it."""
    answer = run_command("worker", "shop:app", option, "5")
    assert answer.code == 2
    assert f"{option} needs a supervisor: give --processes as well" in answer.err
