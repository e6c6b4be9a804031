"""Cells: eight bytes of shared memory for each job a child process may hold, so that its supervisor knows what has started.

A child writes the time (CLOCK_MONOTONIC, in microseconds) into a job's cell before its handler is called, and the negative of it when the
handler has ended. That costs no system call, and it is there for the parent to read whatever becomes of the child. One cell more is
written by the parent: how long the leases it renews are sure to hold.
"""

from __future__ import annotations

import mmap
import os
import time

CELL_BYTES = 8


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
    os.ftruncate(fd, (cells + 1) * CELL_BYTES)
    return fd


class Cells:
    """The cells of one child, seen from either side. 0: not started; above: since when its handler runs; below: the handler has ended."""

    def __init__(self, fd: int) -> None:
        cells = os.fstat(fd).st_size // CELL_BYTES
        self.count = cells - 1
        self._memory = mmap.mmap(fd, cells * CELL_BYTES)
        self._view = memoryview(self._memory).cast("q")

    def __getitem__(self, cell: int) -> int:
        return self._view[cell]

    def clear(self, cell: int) -> None:
        """The cell is for another job now, which has not started."""
        self._view[cell] = 0

    def start(self, cell: int) -> None:
        """The job's handler is going to be called."""
        self._view[cell] = time.monotonic_ns() // 1_000

    def end(self, cell: int) -> None:
        """The job's handler has ended, in whatever way."""
        self._view[cell] = -abs(self._view[cell])

    @property
    def kept_until_us(self) -> int:
        """How long the leases of everything the child holds are sure, by the last renewal."""
        return self._view[self.count]

    def keep_until(self, until_us: int) -> None:
        """The parent has renewed them."""
        self._view[self.count] = until_us

    def close(self) -> None:
        """Lets go of the memory."""
        self._view.release()
        self._memory.close()
