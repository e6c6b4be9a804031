"""An adapter as a running process: its JSON lines, its end, and what it said when it failed."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

STOP_S = 10.0
SAID_MAX = 300
# What would reach into the environment of a peer.
FOREIGN = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "NODE_OPTIONS")


class PeerFailed(Exception):
    """A peer did not do what was asked; the message is one line."""


class Program:
    """One process of an adapter, in a group of its own. `with` ends it, whatever happens."""

    def __init__(self, command: list[str], environment: dict[str, str], folder: Path) -> None:
        self._errors = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed in __exit__
        inherited = {name: value for name, value in os.environ.items() if name not in FOREIGN}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**inherited, **environment},
            cwd=folder,
            text=True,
            start_new_session=True,
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it is there."""
        return self._process.poll() is None

    def answer(self, within_s: float) -> dict[str, Any]:
        """The next line that is a JSON object. Other lines are somebody's chatter."""
        while True:
            try:
                line = self._lines.get(timeout=within_s)
            except queue.Empty:
                raise PeerFailed(f"no answer within {within_s:g} s{self._said()}") from None
            if line is None:
                raise PeerFailed(f"ended with {self._process.wait()}{self._said()}")
            with contextlib.suppress(ValueError):
                told = json.loads(line)
                if isinstance(told, dict):
                    return told

    def ask(self, within_s: float) -> dict[str, Any]:
        """Sends an empty line, and gives the answer to it."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise PeerFailed(f"ended with {self._process.wait()}{self._said()}") from None
        return self.answer(within_s)

    def stop(self) -> None:
        """SIGTERM, and after a while SIGKILL, to it and all it has started."""
        self._signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_S)
        self.kill()

    def kill(self) -> None:
        """SIGKILL to it and all it has started; returns when it is gone."""
        self._signal(signal.SIGKILL)
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Ends it and gives back what it had of this process."""
        self.stop()
        self._reading.join()
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._errors.close()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._lines.put(line)
        self._lines.put(None)

    def _said(self) -> str:
        self._errors.seek(0)
        lines = [line for line in self._errors.read().decode("utf-8", "replace").splitlines() if line.strip()]
        return f": {_telling(lines)[:SAID_MAX]}" if lines else ""


def _telling(lines: list[str]) -> str:
    """The line of an error: Python's traceback ends with it, Node's begins with it."""
    named = [line for line in lines if "Error" in line and not line.startswith(" ")]
    return (named[-1] if named else lines[-1]).strip()
