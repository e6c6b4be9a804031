"""The ledger: a file beside the queue in which every process notes what it did, one line and one write per event.

A line appended by one write call is never torn, and a killed process loses none that it has written. So the ledger, not the queue's own
rows, is the evidence of what happened. Times are microseconds of CLOCK_MONOTONIC, which all processes of a machine share; `store` times
are the store's own. This module knows nothing of the queue: the checker imports it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

LINE_BYTES_MAX = 4_096
READ_BYTES = 1 << 20


class Line(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One event. Every kind uses some of the fields, the others are left out of the line; docs/guide/torture.md lists them."""

    kind: str
    at: int
    pid: int
    job: str = ""
    fence: int = 0
    sent: int = 0  # when the call was made whose answer this line tells
    store: int = 0  # the store's time of the answer
    until: int = 0  # CLAIM: the end of the lease, on the store's clock
    due: int = 0  # when the job falls due, on the store's clock
    attempt: int = 0
    gen: int = 0
    id: str = ""  # of the claim or of the settle
    cause: str = ""
    status: str = ""
    guard: str = ""  # held, lapsed or dead
    how: str = ""  # END: what came of it; NEMESIS: the kind of fault; UP: the role; CANCEL: the answer
    step: str = ""  # NEMESIS: start or stop
    key: str = ""  # the idempotency key
    n: int = 0  # EFFECT: the how manieth operation of the sink on this job
    ok: bool = False  # RENEW: still held
    fenced: bool = False  # EFFECT: accepted by the sink that looks at the fence
    keyed: bool = False  # EFFECT: accepted by the sink that records the key, too
    parent: int = 0
    pids: tuple[int, ...] = ()
    settings: dict[str, Any] = {}  # RUN: what this run was asked to do


class Row(msgspec.Struct, kw_only=True):
    """A job as the store shows it at the end, in the file of the final state."""

    id: str
    status: str
    run_at: int | None
    finished_at: int | None
    owner: str | None
    lease_until: int | None
    attempts: int
    failures: int
    crashes: int
    snoozes: int
    releases: int
    generation: int
    fence: int
    max_retries: int | None


def mono_us() -> int:
    """A clock that is the same for all processes of a machine, and that nobody sets."""
    return time.monotonic_ns() // 1_000


class Ledger:
    """Appends lines; any number of processes at once."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._encode = msgspec.json.Encoder().encode

    def note(self, kind: str, **facts: Any) -> None:
        """One line, one write. Its time is that of the call unless `at` is given."""
        facts.setdefault("at", mono_us())
        text = self._encode(Line(kind=kind, pid=os.getpid(), **facts)) + b"\n"
        if len(text) > LINE_BYTES_MAX:
            raise ValueError(f"a line of {len(text)} bytes is too long to be written at once")
        os.write(self._fd, text)

    def close(self) -> None:
        """Gives the file back."""
        os.close(self._fd)


def read_lines(path: Path) -> Iterator[Line]:
    """All whole lines of a ledger, in the order in which they were written, a piece at a time."""
    decode = msgspec.json.Decoder(Line).decode
    with path.open("rb") as file:
        rest = b""
        while piece := file.read(READ_BYTES):
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                yield decode(line)


def read_rows(path: Path) -> Iterator[Row]:
    """The final state, one job per line."""
    decode = msgspec.json.Decoder(Row).decode
    with path.open("rb") as file:
        for line in file:
            yield decode(line)
