from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from mulligan.cli import COMMANDS, main
from mulligan.version import VERSION
from tests.cli.commands import environment
from tests.cli.conftest import Run


def command_of(name: str) -> click.Command:
    found = main.get_command(click.Context(main), name)
    assert found is not None
    return found


def test_help_lists_every_command_in_order(run: Run) -> None:
    """`mulligan --help` names each command once, in the order of the table."""
    answer = run("--help")
    assert answer.code == 0
    listed = [line.split()[0] for line in answer.out.partition("Commands:")[2].splitlines() if line.startswith("  ") and line.split()]
    assert [name for name in listed if name in COMMANDS] == list(COMMANDS)


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_has_its_help(run: Run, name: str) -> None:
    """Each command can be loaded, is named as in the table, and its own help begins as its summary does."""
    command = command_of(name)
    assert command.name == name
    assert (command.help or "").split()[:2] == COMMANDS[name].summary.split()[:2]
    answer = run(name, "--help")
    assert answer.code == 0
    assert "--json" in answer.out


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "completion"])
def test_every_command_takes_a_store(name: str) -> None:
    """--store is an option of each command that works on one."""
    assert "store" in {parameter.name for parameter in command_of(name).params}


def test_the_version_is_told(run: Run) -> None:
    """`mulligan --version` names the version."""
    answer = run("--version")
    assert answer.code == 0
    assert VERSION in answer.out


def test_the_module_is_the_command(folder: Path) -> None:
    """`python -m mulligan` is the same command line."""
    answer = subprocess.run(
        [sys.executable, "-m", "mulligan", "--help"], cwd=folder, env=environment(), capture_output=True, text=True, timeout=30, check=False
    )
    assert answer.returncode == 0
    assert answer.stdout.startswith("Usage: mulligan ")


@pytest.mark.parametrize(
    "typed", [["nope"], ["status", "--nope"], ["show"], ["jobs", "--status", "dead"], ["--nope"], ["jobs", "--limit", "0"]]
)
def test_what_is_typed_wrongly_is_a_usage_error(run: Run, typed: list[str]) -> None:
    """An unknown command, option or value ends with 2 and says so on stderr."""
    answer = run(*typed)
    assert answer.code == 2
    assert answer.out == ""
    assert "Error: " in answer.err


@pytest.mark.parametrize("typed", [["\x1b[31mred"], ["status", "--\x1b[31m"], ["jobs", "--status", "\x1b[31m"], ["--\x1b[31m"]])
def test_typed_control_characters_do_not_come_back(run: Run, typed: list[str]) -> None:
    """What was typed is shown by its escapes."""
    answer = run(*typed)
    assert answer.code == 2
    assert "\x1b" not in answer.err
    assert "\\x1b[31m" in answer.err
