"""Other processes on the same file. They say where they are by printing a line, and wait for a line before they go on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

PRELUDE = """
import asyncio, sys
import msgspec
from mulligan.stores.sqlite import SQLiteStore
from tests import builders

def say(value):
    print(msgspec.json.encode(value).decode(), flush=True)

def wait():
    sys.stdin.readline()
"""
ROOT = Path(__file__).parents[2]


class Child:
    """A process that runs some lines of Python; argv[1] on are its arguments."""

    def __init__(self, code: str, *arguments: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + code, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def hear(self) -> Any:
        """The next thing it says; fails if it ends instead."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the child ended with {self.process.wait()} and said nothing"
        return msgspec.json.decode(line)

    def go_on(self) -> None:
        """Lets it come out of its wait()."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> None:
        """Ends it, whatever it does, and waits until it is gone."""
        self.process.kill()
        self.process.communicate()


@contextmanager
def child(code: str, *arguments: object) -> Iterator[Child]:
    """A child that does not outlive the block."""
    started = Child(code, *arguments)
    try:
        yield started
    finally:
        started.end()
