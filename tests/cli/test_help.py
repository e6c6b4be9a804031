from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from mulligan.cli import COMMANDS, main
from mulligan.cli.exits import INTERRUPTED, exit_code_of
from mulligan.cli.group import Lazy, LazyGroup
from mulligan.cli.options import json_option
from mulligan.core import errors
from mulligan.core.errors import JobFailed
from mulligan.version import VERSION
from tests.cli.commands import environment
from tests.cli.conftest import Run


@click.command()
@json_option
def interrupted(as_json: bool) -> None:
    """A command in the middle of which somebody types Ctrl-C."""
    raise KeyboardInterrupt


@click.command()
@json_option
def failing(as_json: bool) -> None:
    """A command that meets an error of ours."""
    raise JobFailed("it\x1b[31m failed")


@click.command()
@json_option
def buggy(as_json: bool) -> None:
    """A command with a bug."""
    raise RuntimeError("a bug")


GROUP = LazyGroup(
    lazy={name: Lazy(f"tests.cli.test_help:{name}", "A sample.") for name in ("interrupted", "failing", "buggy")},
)


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


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in ("completion", "copy")])
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


def test_ctrl_c_ends_with_its_own_code() -> None:
    """A command that was interrupted ends with 130, without a traceback."""
    result = CliRunner().invoke(GROUP, ["interrupted"])
    assert result.exit_code == INTERRUPTED
    assert result.output == ""


def test_an_error_of_ours_is_one_line() -> None:
    """In text on stderr, in JSON on stdout, never as a traceback."""
    text = CliRunner().invoke(GROUP, ["failing"])
    assert (text.exit_code, text.stdout, text.stderr) == (1, "", "Error: it\\x1b[31m failed\n")
    document = CliRunner().invoke(GROUP, ["failing", "--json"])
    assert document.exit_code == 1
    assert json.loads(document.stdout) == {"error": {"type": "JobFailed", "message": "it\x1b[31m failed"}}
    assert document.stderr == ""


def test_a_bug_is_not_hidden() -> None:
    """An error that is not ours keeps its traceback, which is what a report needs."""
    assert isinstance(CliRunner().invoke(GROUP, ["buggy"]).exception, RuntimeError)


@pytest.mark.parametrize(
    "error, code",
    [
        (errors.JobNotFound, 3),
        (errors.UnknownQueue, 3),
        (errors.UnknownTask, 2),
        (errors.BadSetting, 2),
        (errors.BadPayload, 2),
        (errors.IllegalMove, 2),
        (errors.StoreUnavailable, 4),
        (errors.StoreRejected, 4),
        (errors.SchemaMismatch, 4),
        (errors.JobFailed, 1),
    ],
)
def test_every_error_has_its_exit_code(error: type[errors.MulliganError], code: int) -> None:
    """Usage is 2, not found is 3, the store is 4, everything else is a no."""
    assert exit_code_of(error("x")) == code
