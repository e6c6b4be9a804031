"""One server: started, stopped, killed and started again on the same port and data folder."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from tests.servers.accounts import Account
from tests.servers.folder import keep, run_folder
from tests.servers.ports import HOST, free_port
from tests.servers.processes import NO_PROCESS, Process, wait_until

START_S = 40.0
STOP_S = 20.0
LOG_SHOWN = 4_000


class ServerFailed(RuntimeError):
    """A server did not start or did not stop; the message ends with what it said last."""


class Server(ABC):
    """A server of a test's own. It ends with its owner (this process, if none is named), whatever becomes of that.

    with Postgres() as server: ... starts it, and removes it at the end.
    """

    kind: ClassVar[str]
    account: Account | None = None
    # How a clean and an abrupt end are asked for; the second loses nothing that the server has called durable.
    clean: ClassVar[signal.Signals] = signal.SIGTERM
    abrupt: ClassVar[signal.Signals] = signal.SIGKILL

    def __init__(self, *, owner: int | None = None) -> None:
        self.owner = owner or os.getpid()
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix=f"{self.kind}-", dir=run_folder()))
        self.log = self.folder.with_suffix(".log")
        self._note = self.folder.with_suffix(".leash")
        self._process = NO_PROCESS
        self._leash = NO_PROCESS
        self._prepared = False

    @property
    @abstractmethod
    def url(self) -> str:
        """The address a store is opened with, without a namespace."""

    @abstractmethod
    def prepare(self) -> None:
        """Makes the data folder before the first start."""

    @abstractmethod
    def command(self) -> list[str]:
        """The program and its options."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether it is ready for its clients. Asked only once it accepts connections."""

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._process.alive

    def start(self) -> Self:
        """Starts it, on the same port and data folder if it ran before, and returns when it answers."""
        if self.running:
            return self
        if not self._prepared:
            self.prepare()
            self._prepared = True
        self._launch()
        if not wait_until(lambda: not self.running or (self._listens() and self.answers()), START_S) or not self.running:
            said = self.said()
            self.remove()
            raise ServerFailed(f"{self.kind} did not start; it said:\n{said}")
        return self

    def stop(self, *, immediate: bool = True) -> None:
        """Ends it: at once, as a crash of the program does, or cleanly. Returns when it is gone."""
        self._end(self.abrupt if immediate else self.clean)

    def kill(self) -> None:
        """Ends it with SIGKILL, as the system does when memory is short. Returns when it is gone."""
        self._end(signal.SIGKILL)

    def remove(self) -> None:
        """Ends it, if it runs, and removes its data."""
        if self.running:
            self._end(self.abrupt)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.log.unlink(missing_ok=True)

    def said(self) -> str:
        """The end of what it wrote to its log."""
        return self.log.read_text("utf-8", "replace")[-LOG_SHOWN:] if self.log.exists() else "(nothing)"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.remove()

    def _launch(self) -> None:
        plan = {
            "owner": self.owner,
            "folder": str(self.folder),
            "log": str(self.log),
            "signal": int(self.abrupt),
            "uid": self.account and self.account.uid,
            "gid": self.account and self.account.gid,
            "command": self.command(),
        }
        try:
            told = keep(plan)
        except OSError as error:
            raise ServerFailed(f"{self.kind} could not be run: {error}") from error
        self._process, self._leash = Process(*told["server"]), Process(*told["leash"])
        whole = self._note.with_suffix(".new")
        whole.write_text(json.dumps(self._leash), "utf-8")
        whole.replace(self._note)

    def _end(self, signal_number: signal.Signals) -> None:
        self._process.send(signal_number)
        if not wait_until(lambda: not self._process.alive and not self._leash.alive, STOP_S):
            raise ServerFailed(f"{self.kind} did not stop on {signal_number.name}; it said:\n{self.said()}")
        self._note.unlink(missing_ok=True)

    def _listens(self) -> bool:
        try:
            socket.create_connection((HOST, self.port), timeout=1).close()
        except OSError:
            return False
        return True
