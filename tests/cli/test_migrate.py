from __future__ import annotations

import sqlite3
from pathlib import Path

from tests.cli.conftest import Run


def test_plan_changes_nothing_and_then_migrate_does(run: Run, folder: Path) -> None:
    """The plan names each step with exit code 1, migrating applies them, and afterwards there is nothing to do."""
    plan = run("migrate", "--plan", "--json")
    assert plan.code == 1
    assert plan.json["pending"][0]["number"] == 1
    assert list(folder.iterdir()) == []
    done = run("migrate", "--json")
    assert done.code == 0
    assert done.json["applied"] == plan.json["pending"]
    again = run("migrate", "--plan")
    assert again.code == 0
    assert "up to date" in again.out
    assert run("migrate").out == again.out
    assert run("status").code == 0


def test_the_plan_reads_well(run: Run) -> None:
    """Each step is a line with its number and name."""
    assert run("migrate", "--plan").out.startswith("would apply 1: ")
    assert run("migrate").out.startswith("applied 1: ")


def test_the_schema_can_be_read_as_sql(run: Run, folder: Path) -> None:
    """--sql prints a script SQLite accepts, and creates no file."""
    answer = run("migrate", "--sql")
    assert answer.code == 0
    assert list(folder.iterdir()) == []
    connection = sqlite3.connect(":memory:")
    connection.executescript(answer.out)
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    connection.close()
    assert {"mulligan_jobs", "mulligan_migrations"} <= tables
    assert run("migrate", "--sql", "--json").json["sql"] == answer.out


def test_memory_cannot_be_migrated(run: Run) -> None:
    """A store of one process has nothing to bring up to date."""
    assert run("migrate", "--store", "memory://").code == 2


def test_the_plan_and_the_script_are_asked_for_one_at_a_time(run: Run, folder: Path) -> None:
    """Together they would be two answers in one."""
    answer = run("migrate", "--plan", "--sql")
    assert answer.code == 2
    assert "ask for one of them" in answer.err
    assert list(folder.iterdir()) == []
