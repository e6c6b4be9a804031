"""The ledger: a file beside the queue in which every process notes what it did, one line and one write per event.

A line appended by one write call is never torn, and a killed process loses none it has written. So the ledger, not the queue's own tables,
is the evidence of what happened.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple


class Line(NamedTuple):
    """One event: what, of which job, under which fence, in which process, at which time, and a word more."""

    kind: str
    job: str
    fence: int
    pid: int
    at_us: int
    more: str


class Ledger:
    """Appends lines; any number of processes at once."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, kind: str, job: str = "-", fence: int = 0, at_us: int = 0, more: object = "-") -> None:
        """One line, one write."""
        os.write(self._fd, f"{kind} {job} {fence} {os.getpid()} {at_us} {more}\n".encode())

    def close(self) -> None:
        os.close(self._fd)


def read(path: Path, *kinds: str) -> list[Line]:
    """The lines so far, of these kinds or all, in the order in which they were written."""
    if not path.exists():
        return []
    lines = []
    for text in path.read_text("utf-8").split("\n")[:-1]:  # what follows the last line end is a line that is being written
        kind, job, fence, pid, at_us, more = text.split(" ", 5)
        if not kinds or kind in kinds:
            lines.append(Line(kind, job, int(fence), int(pid), int(at_us), more))
    return lines
