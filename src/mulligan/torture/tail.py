"""Follows the ledger while it grows: which processes are at work, and how many jobs have been stored and ended so far."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from mulligan.torture.ledger import READ_BYTES, Line

LOOK_S = 0.05
ENDS = ("done", "failed", "cancelled")


class Process:
    """A worker process as the ledger shows it."""

    __slots__ = ("parent", "pid", "worked")

    def __init__(self, pid: int, parent: int) -> None:
        self.pid = pid
        self.parent = parent
        self.worked = False  # it has started a job


class Tail:
    """`run` reads what is new, again and again."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._rest = b""
        self._decode = msgspec.json.Decoder(Line).decode
        self.ready: dict[int, Process] = {}  # those that run jobs; whoever kills one takes it out
        self.born: dict[int, int] = {}  # the parent of every process that was ever seen
        self.stored = 0
        self.ended = 0
        self.grown = asyncio.Event()  # something was read since it was cleared

    async def run(self) -> None:
        """The loop; ends by cancellation."""
        while True:
            if self.read():
                self.grown.set()
            await asyncio.sleep(LOOK_S)

    def read(self) -> bool:
        """Reads what is new; False if nothing was."""
        piece = self._file.read(READ_BYTES)
        if not piece:
            return False
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for text in lines:
            self._take(self._decode(text))
        return True

    def _take(self, line: Line) -> None:
        kind = line.kind
        if kind == "START":
            if process := self.ready.get(line.pid):
                process.worked = True
        elif kind == "SETTLE_OK":
            self.ended += line.status in ENDS
        elif kind == "CANCEL":
            self.ended += line.how == "cancelled"
        elif kind == "ENQ_OK":
            self.stored += 1
        elif kind == "READY":
            self.ready[line.pid] = Process(line.pid, line.parent)
        elif kind == "UP":
            self.born[line.pid] = line.parent

    def at_work(self, parents: set[int]) -> list[Process]:
        """The children of these workers that have begun to run jobs."""
        return [process for process in self.ready.values() if process.parent in parents and process.worked]

    def close(self) -> None:
        """Gives the file back."""
        self._file.close()
