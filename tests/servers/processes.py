"""Looking at processes that need not be our children, and waiting for what other processes do."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from time import monotonic
from typing import NamedTuple

from tests.servers.leash import birth

LOOK_S = 0.01


class Process(NamedTuple):
    """A process that is not mistaken for a later one with the same id."""

    pid: int
    born: str | None

    @property
    def alive(self) -> bool:
        """Whether it still runs. One that has ended and waits to be collected by its parent does not."""
        return self.born is not None and birth(self.pid) == self.born

    def send(self, signal_number: int) -> None:
        """Sends it a signal, if it still runs."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal_number)


NO_PROCESS = Process(0, None)


def process(pid: int) -> Process:
    """The process that has this id now."""
    return Process(pid, birth(pid))


def wait_until(happened: Callable[[], bool], timeout_s: float) -> bool:
    """Looks again and again; False if it has not happened in time."""
    deadline = monotonic() + timeout_s
    pause = threading.Event()
    while not happened():
        if monotonic() > deadline:
            return False
        pause.wait(LOOK_S)
    return True
