"""Two settings of the interpreter that belong to the whole process, lent to its workers while they run.

Thread turns. A store's thread gives up the interpreter's lock at every step of its driver and must get it back to go on. By default a busy
thread keeps the lock for 5 ms, so a loop full of short jobs (or one handler that computes) would slow every write down to that.

Searches for garbage. After so many new objects the interpreter looks through the young ones for garbage that is kept alive by a cycle, by
default after 700. A worker has thousands of jobs in its hands, none of them garbage, and each of those searches walks over them.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Value = TypeVar("Value", bound=float)


class Lent(Generic[Value]):
    """A setting of the process: the first worker notes what it finds, and the last one to stop puts it back."""

    def __init__(self, read: Callable[[], Value], write: Callable[[Value], None], choose: Callable[[Value, Value], Value]) -> None:
        self._read = read
        self._write = write
        self._choose = choose
        self._lock = threading.Lock()
        self._workers = 0
        self._before: Value | None = None

    def borrow(self, wanted: Value) -> None:
        """Called by a worker that starts; what is set already may be better than what it wants, and stays then."""
        with self._lock:
            if self._workers == 0:
                self._before = self._read()
            self._workers += 1
            self._write(self._choose(wanted, self._read()))

    def put_back(self) -> None:
        """Called by a worker that has stopped."""
        with self._lock:
            self._workers -= 1
            if self._workers == 0 and self._before is not None:
                self._write(self._before)


def _write_gc_every(objects: int) -> None:
    gc.set_threshold(objects, *gc.get_threshold()[1:])


THREAD_TURNS: Lent[float] = Lent(sys.getswitchinterval, sys.setswitchinterval, min)
# A program that has switched the search off (0) knows why.
GC_EVERY: Lent[int] = Lent(lambda: gc.get_threshold()[0], _write_gc_every, lambda wanted, now: max(wanted, now) if now else 0)
