"""One writer at a time among all processes: a lock on a file beside the database.

SQLite has a write lock of its own, but it is not fair: of two busy processes one can write thousands of times before the other gets
its turn. And many SQLite libraries have a bug that can corrupt the file when two connections write and checkpoint at once (version.py).
So every transaction, checkpoint, migration and close of ours happens under this lock.

The file also holds two flags, shared as memory, because reading memory costs no system call and never gives up the interpreter's lock:
- WAITING: somebody was refused the lock. Its holder then makes way before it takes the lock again, which is what makes it fair.
- ARMED: somebody wants to be woken up when there is work (wake.py).
"""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
import weakref
from collections.abc import Callable
from functools import partial

from mulligan.core.errors import BadSetting, StoreUnavailable

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

ARMED, WAITING = 0, 1
_SIZE = 16
_PAUSE_MIN_S, _PAUSE_MAX_S = 0.000_2, 0.005
_PATIENT_AFTER_S = 0.05  # a lock held for longer than a transaction should take is looked at less often
_MAKE_WAY_S = 0.000_6  # some three looks of a waiting process

_of_this_process: weakref.WeakSet[FileLock] = weakref.WeakSet()


class FileLock:
    """The lock and its flags: open → (held ⇄ free) → closed. Held by at most one FileLock object among all processes."""

    def __init__(self, database: str) -> None:
        if fcntl is None:
            raise BadSetting("the SQLite store needs file locks of a POSIX system (Linux, macOS), which this platform does not have")
        self.path = f"{database}-lock"
        self._fd, self.flags = self._open()
        self.release = self._release_of(self._fd)
        self._pause = threading.Lock()  # never free: waiting for it is a nap of exact length
        self._pause.acquire()
        _of_this_process.add(self)

    def _open(self) -> tuple[int, mmap.mmap]:
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(descriptor).st_size < _SIZE:
                os.ftruncate(descriptor, _SIZE)
            return descriptor, mmap.mmap(descriptor, _SIZE)
        except OSError:
            os.close(descriptor)
            raise

    def acquire(self, timeout_s: float) -> None:
        """Waits for its turn, at most about so long; StoreUnavailable if that was not enough."""
        if self.flags[WAITING]:
            self.flags[WAITING] = 0
            self._nap(_MAKE_WAY_S)
        waited_s, pause_s = 0.0, _PAUSE_MIN_S
        while not self._try():
            self.flags[WAITING] = 1
            if waited_s >= timeout_s:
                raise StoreUnavailable(
                    f"another process has held {self.path} for {timeout_s:g} s: it is stopped or very slow; "
                    "let it go on or end it (a process that has ended holds nothing)"
                )
            self._nap(pause_s)
            waited_s += pause_s
            if waited_s > _PATIENT_AFTER_S:
                pause_s = min(pause_s * 1.5, _PAUSE_MAX_S)
        if waited_s:
            self.flags[WAITING] = 0  # It was our own; whoever else waits raises it again at the next look.

    def _release_of(self, descriptor: int) -> Callable[[], object]:
        """What lets the next one go on; done to a lock that is not held, it changes nothing.

        Compiled code alone, because a signal's handler may raise wherever Python's own begins, and all processes would then wait.
        """
        return partial(fcntl.flock, descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Gives the file back; it stays where it is, because another process may be about to lock it."""
        if self._fd >= 0:
            self.flags.close()
            os.close(self._fd)
            self._fd = -1

    def follow(self, timeout_s: float) -> None:
        """While holding it: if its file was deleted, others lock another one by now; takes that one instead."""
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(self._fd), os.stat(self.path)):
                return
        descriptor = self._fd
        self._fd, self.flags = self._open()  # The old flags are left to whoever looks at them just now.
        self.release = self._release_of(self._fd)
        os.close(descriptor)
        self.acquire(timeout_s)

    def _try(self) -> bool:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _nap(self, seconds: float) -> None:
        self._pause.acquire(timeout=seconds)

    def forget(self) -> None:
        """In a forked child: without this, a lock its parent died with would stay taken as long as the child lives."""
        self.close()  # The flags too, because they keep a descriptor of their own.


def _forget_all() -> None:
    for lock in list(_of_this_process):
        lock.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
