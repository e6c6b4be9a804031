"""The four jobs every peer runs, one that only mulligan runs, and what they leave behind. Standard library only: each peer has an
environment of its own.

`noop`, `storm` and `burn` only count: a write for each job would be a part of what is measured. A thread hands the sums on many times
a second.
`probe` and `mortal` write a record at once, because the time of it, or that it was before a kill, is what is measured.
"""

from __future__ import annotations

import asyncio
import os
import struct
import threading
import time

ATTEMPTS = 3  # of a job of the storm: it fails, fails and succeeds
BURN_NS = 1_000_000  # CPU of a job of which two processes should do nearly twice as many as one
NAP_S = 0.005  # of a mortal job, so that a kill meets some in the middle
FLUSH_S = 0.02
PAUSE_NS = 100_000_000  # the first execution after such a pause is told at once, so that the pause can be measured
STARTED, FINISHED = 0, 1
TRACE = struct.Struct("<IIQ")  # number of the job, STARTED or FINISHED, time
SUMS = struct.Struct("<QQQQQ")  # process, executions, sum of the numbers, time of the first, time of the last


class TryAgain(Exception):
    """Why a job of the storm fails."""


class Sums:
    """How many executions this process has begun, and which, as far as sums can tell."""

    def __init__(self) -> None:
        self._file = -1
        self._lock = threading.Lock()
        self._expected = int(os.environ.get("BENCH_EXPECT", "0"))
        self.forget()

    def forget(self) -> None:
        """Begins anew, as a forked process has to: it has the sums of its parent, but not its thread."""
        self._lock = threading.Lock()
        self._count = self._total = self._first_ns = self._last_ns = self._told = 0

    def note(self, number: int) -> None:
        """One more execution."""
        with self._lock:
            now = time.monotonic_ns()
            if not self._count:
                self._begin(now)
            paused = now - self._last_ns > PAUSE_NS
            self._count += 1
            self._total += number
            self._last_ns = now
            if paused or self._count == self._expected:
                self._tell()

    def _begin(self, now: int) -> None:
        self._first_ns = now
        self._file = _opened()
        threading.Thread(target=self._flush, name="sums", daemon=True).start()

    def _flush(self) -> None:
        while True:
            time.sleep(FLUSH_S)
            with self._lock:
                if self._count != self._told:
                    self._tell()

    def _tell(self) -> None:
        self._told = self._count
        os.write(self._file, SUMS.pack(os.getpid(), self._count, self._total, self._first_ns, self._last_ns))


class Trace:
    """Writes each record at once. One write of so few bytes to the end of a file is whole or not there."""

    def __init__(self) -> None:
        self._file = -1

    def note(self, number: int, what: int) -> None:
        """One more record."""
        if self._file < 0:
            self._file = _opened()
        os.write(self._file, TRACE.pack(number, what, time.monotonic_ns()))


def _opened() -> int:
    return os.open(os.environ["BENCH_RECORDS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)


_sums, _trace = Sums(), Trace()
os.register_at_fork(after_in_child=_sums.forget)


def noop(number: int) -> None:
    """Does nothing; it is counted."""
    _sums.note(number)


def storm(number: int, attempt: int) -> None:
    """Fails at every attempt but the last; attempts are counted from 1."""
    _sums.note(number)
    if attempt < ATTEMPTS:
        raise TryAgain("try again")


def burn(number: int) -> None:
    """Uses the CPU for a while, however long that takes."""
    _sums.note(number)
    end_ns = time.thread_time_ns() + BURN_NS
    while time.thread_time_ns() < end_ns:
        pass


def probe(number: int) -> None:
    """Tells when it was begun."""
    _trace.note(number, STARTED)


def mortal(number: int) -> None:
    """Tells when it was begun and when it was finished; in a thread or process."""
    _trace.note(number, STARTED)
    time.sleep(NAP_S)
    _trace.note(number, FINISHED)


async def mortal_async(number: int) -> None:
    """The same in an event loop."""
    _trace.note(number, STARTED)
    await asyncio.sleep(NAP_S)
    _trace.note(number, FINISHED)
