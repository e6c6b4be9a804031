"""How often threads hand over the interpreter while a worker runs in this process.

The store's thread gives up the interpreter's lock at every step of SQLite and must get it back to go on. By default a busy thread
keeps the lock for 5 ms, so a loop full of short jobs (or one handler that computes) would slow every write down to that. A worker
asks for a shorter turn while it runs, and puts back what it found when the last one of the process has stopped.
"""

from __future__ import annotations

import sys
import threading


class ThreadTurns:
    """The interpreter's switch interval, lent to the workers of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._workers = 0
        self._before_s = 0.0

    def shorten(self, turn_s: float) -> None:
        """Called by a worker that starts; never makes turns longer than they are."""
        with self._lock:
            if self._workers == 0:
                self._before_s = sys.getswitchinterval()
            self._workers += 1
            sys.setswitchinterval(min(turn_s, sys.getswitchinterval()))

    def put_back(self) -> None:
        """Called by a worker that has stopped."""
        with self._lock:
            self._workers -= 1
            if self._workers == 0:
                sys.setswitchinterval(self._before_s)


THREAD_TURNS = ThreadTurns()
