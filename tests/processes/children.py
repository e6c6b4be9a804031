"""Child processes of a test: started from a script of this folder, watched line by line, never left behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 40.0  # far more than anything here takes; only a defect runs into it


class Child:
    """One process. Everything it prints can be waited for; what it says on standard error is shown when a wait fails."""

    def __init__(self, script: str, *args: object, errors: Path) -> None:
        self._errors = errors
        with errors.open("w") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.processes.launch", str(os.getpid()), script, *map(str, args)],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        self.pid = self._process.pid
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def expect(self, word: str, within_s: float = PATIENCE_S) -> str:
        """The next line that begins with this word, without it; those before are skipped."""
        deadline = time.monotonic() + within_s
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"process {self.pid} did not say {word!r} in time\n{self.errors()}") from None
            if line is None:
                raise AssertionError(f"process {self.pid} ended without saying {word!r}\n{self.errors()}")
            if line.split(" ")[0] == word or line == word:
                return line[len(word) :].strip()

    async def said(self, word: str, within_s: float = PATIENCE_S) -> str:
        """The same, for a test with a loop."""
        return await asyncio.to_thread(self.expect, word, within_s)

    def tell(self, line: str = "") -> None:
        """One line to its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def errors(self) -> str:
        """What it has written to standard error."""
        return self._errors.read_text("utf-8", "replace")[-5_000:]

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.wait(PATIENCE_S)

    def interrupt(self) -> None:
        """Ctrl-C."""
        self._process.send_signal(signal.SIGINT)

    def stop_at_rest(self, lock_file: Path | None) -> None:
        """SIGSTOP at a moment when it holds no file lock: a process stopped inside a write would stop all others, too, by design.

        A store behind a network has no such lock, and may be stopped at any moment.
        """
        import fcntl

        if lock_file is None:
            os.kill(self.pid, signal.SIGSTOP)
            return
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            os.kill(self.pid, signal.SIGSTOP)
            _, status = os.waitpid(self.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status), self.errors()
            with lock_file.open("r+b") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    self.go_on()
                    continue
                return
        raise AssertionError("the process always holds the file lock")

    def go_on(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def wait(self) -> int:
        """Its exit status, once it has ended."""
        return self._process.wait(PATIENCE_S)

    def finish(self) -> None:
        """Tells it to stop, and holds it to a clean end."""
        self.tell("stop")
        self.expect("stopped")
        assert self.wait() == 0, self.errors()

    def clear(self) -> None:
        """Whatever its state, it is gone afterwards."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._reader.join(PATIENCE_S)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


class Nursery:
    """Starts the children of one test on one store, and clears them away at its end."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.database = Path(url.removeprefix("sqlite:///"))  # where the store is a file
        self.ledger = folder / "ledger.txt"
        self._children: list[Child] = []

    @property
    def lock_file(self) -> Path | None:
        """The lock that a writer to a file holds; None where the store is none."""
        return Path(f"{self.database}-lock") if self.url.startswith("sqlite:") else None

    def start(self, script: str, *args: object) -> Child:
        """A child of this script."""
        child = Child(script, *args, errors=self.folder / f"stderr-{len(self._children)}.txt")
        self._children.append(child)
        return child

    def server(self, *, url: str = "", **settings: Any) -> Child:
        """A worker process that is ready."""
        child = self.start("server", url or self.url, self.ledger, json.dumps(settings))
        child.expect("ready")
        return child

    def clear(self) -> None:
        for child in self._children:
            child.clear()


async def until(condition: Callable[[], Awaitable[Any]], *, within_s: float = PATIENCE_S, pause_s: float = 0.01) -> Any:
    """The first true answer of the condition; fails when it takes too long."""
    deadline = time.monotonic() + within_s
    while not (answer := await condition()):
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(pause_s)
    return answer
