"""Running commands: inside this process where that is enough, as real processes where signals and exits matter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from click.testing import CliRunner

from mulligan.cli import main

LIMIT_S = 40


class Answer(NamedTuple):
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


def run_command(*arguments: str) -> Answer:
    """Runs a command in this process. A traceback is a failure of the test, whatever the command was to do."""
    result = CliRunner().invoke(main, [str(argument) for argument in arguments], prog_name="mulligan")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Answer(result.exit_code, result.stdout, result.stderr)


def environment(**more: str) -> dict[str, str]:
    """The variables of a child process: none that change what a command does, but for those given."""
    kept = {name: value for name, value in os.environ.items() if name not in ("MULLIGAN_STORE", "NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    return {**kept, "PYTHONUNBUFFERED": "1", **more}


@contextmanager
def started(*arguments: str, folder: Path, **more: str) -> Iterator[subprocess.Popen[str]]:
    """A command as a process of its own; killed at the end if it still runs."""
    process = subprocess.Popen(
        [sys.executable, "-m", "mulligan", *arguments],
        cwd=folder,
        env=environment(**more),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=LIMIT_S)


def ended(process: subprocess.Popen[str]) -> Answer:
    """Waits for the end of a process."""
    out, err = process.communicate(timeout=LIMIT_S)
    return Answer(process.returncode, out, err)


def line_with(process: subprocess.Popen[str], text: str, *, err: bool = False) -> str:
    """Reads what a process prints (or logs) up to a line with this text; fails if it ends before."""
    stream, other = (process.stderr, process.stdout) if err else (process.stdout, process.stderr)
    assert stream is not None
    assert other is not None
    seen = []
    for line in stream:
        seen.append(line)
        if text in line:
            return line
    raise AssertionError(f"{text!r} was never printed, but:\n{''.join(seen)}\n{other.read()}")
