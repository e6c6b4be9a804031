"""Cells: a little shared memory for each job a child process may hold, so that its supervisor knows what has started.

A child writes the time (CLOCK_MONOTONIC, in microseconds) into a job's cell before its handler is called, and the negative of it when the
handler has ended. That costs no system call, and it is there for the parent to read whatever becomes of the child. The parent writes how
long each job's lease is sure to hold, by its last renewal, and whether it renews at all.
"""

from __future__ import annotations

import mmap
import os
import time

CELL_BYTES = 8
WORDS_PER_CELL = 2  # when it started; until when its lease is sure
WORDS_OF_ALL = 3  # who takes jobs that run alone; until when renewals are fresh; whether a claim is under way
NOBODY_YET, NO_ROOM = 0, -1  # what stands there if nobody takes them


def monotonic_us() -> int:
    """The clock of the cells, which all processes of one machine share."""
    return time.monotonic_ns() // 1_000


def new_memory(cells: int) -> int:
    """A file descriptor of memory for so many cells, all zero."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("mulligan-cells", os.MFD_CLOEXEC)
    else:  # not Linux: a file without a name does the same
        import tempfile

        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, (cells * WORDS_PER_CELL + WORDS_OF_ALL) * CELL_BYTES)
    return fd


class Cells:
    """The cells of one child, seen from either side. 0: not started; above: since when its handler runs; below: the handler has ended."""

    def __init__(self, fd: int) -> None:
        words = os.fstat(fd).st_size // CELL_BYTES
        self.count = (words - WORDS_OF_ALL) // WORDS_PER_CELL
        self._memory = mmap.mmap(fd, words * CELL_BYTES)
        self._view = memoryview(self._memory).cast("q")

    def __getitem__(self, cell: int) -> int:
        return self._view[cell]

    def clear(self, cell: int) -> None:
        """The cell is for another job now, which has not started."""
        self._view[cell] = self._view[self.count + cell] = 0

    def start(self, cell: int) -> None:
        """The job's handler is going to be called."""
        self._view[cell] = time.monotonic_ns() // 1_000

    def end(self, cell: int) -> None:
        """The job's handler has ended, in whatever way."""
        self._view[cell] = -abs(self._view[cell])

    def kept_until_us(self, cell: int) -> int:
        """How long the lease of this job is sure, by its last renewal; 0 before there was one."""
        return self._view[self.count + cell]

    def keep(self, cell: int, until_us: int) -> None:
        """The parent has renewed the lease of this job."""
        self._view[self.count + cell] = until_us

    @property
    def fresh_until_us(self) -> int:
        """Until when the parent's last renewal is no reason to worry; 0 before there was one."""
        return self._view[-2]

    def set_fresh(self, until_us: int) -> None:
        """The parent has renewed what there was to renew."""
        self._view[-2] = until_us

    @property
    def alone_until_us(self) -> int:
        """Until when the parent takes jobs that have to run alone; NOBODY_YET or NO_ROOM if it does not."""
        return self._view[-3]

    def set_alone(self, until_us: int) -> None:
        """The parent's word on that, given again and again: a parent that stands still takes nothing."""
        self._view[-3] = until_us

    @property
    def is_claiming(self) -> bool:
        """Whether the child waits for the answer to a claim, or has not told yet what it has brought."""
        return self._view[-1] != 0

    def set_claiming(self, is_claiming: bool) -> None:
        """The child's word on that."""
        self._view[-1] = int(is_claiming)

    def close(self) -> None:
        """Lets go of the memory."""
        self._view.release()
        self._memory.close()
