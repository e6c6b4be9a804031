"""The sink: what the jobs of a torture run act upon, outside of the queue, so that a stale or repeated effect can be seen.

A file with one small record per job. It refuses a fence below one it has seen, and, as a second opinion, a key it has recorded before.
Records are changed under a lock of their own, so that a stopped process holds up nobody but a rival for the same job.
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading
from pathlib import Path
from typing import NamedTuple

_RECORD = struct.Struct("<QII")  # operations so far, highest fence, highest generation recorded


class Effect(NamedTuple):
    """What the sink made of one effect."""

    n: int  # the how manieth operation on this record it was
    fenced: bool  # the fence was not below one seen before
    keyed: bool  # and its key was new


class Sink:
    """The records of one run; every process opens it once."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._own = threading.Lock()  # a file lock does not keep the threads of one process apart

    def apply(self, number: int, fence: int, generation: int) -> Effect | None:
        """Tries the effect of one execution; None if another process is at this record just now."""
        place = number * _RECORD.size
        with self._own:
            try:
                fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, _RECORD.size, place)
            except OSError:
                return None
            try:
                n, highest, recorded = _RECORD.unpack(os.pread(self._fd, _RECORD.size, place).ljust(_RECORD.size, b"\0"))
                fenced = fence >= highest
                keyed = fenced and generation > recorded
                after = (n + 1, max(fence, highest), generation if keyed else recorded)
                os.pwrite(self._fd, _RECORD.pack(*after), place)
                return Effect(n + 1, fenced, keyed)
            finally:
                fcntl.lockf(self._fd, fcntl.LOCK_UN, _RECORD.size, place)

    def close(self) -> None:
        """Gives the file back, and with it its locks."""
        os.close(self._fd)
