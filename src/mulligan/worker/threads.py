"""Sync handlers run in threads. A thread cannot be stopped from outside; it can be asked, by an exception raised inside it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class JobInterrupted(BaseException):
    """Raised inside a sync handler whose run should stop. A handler may catch it to clean up, and should then let it go on."""


class InterruptibleCall:
    """A call made in a thread of its own that another thread may interrupt.

    The exception arrives between two byte codes of the handler's thread, so a handler that blocks inside one C call
    (a long sleep, a read without time-out) sees it only when that call returns.
    """

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._lock = threading.Lock()
        self._thread_id: int | None = None
        self._interrupted = False
        self._defers = False

    def __call__(self) -> Any:
        with self._lock:
            if self._interrupted:
                raise JobInterrupted
            self._thread_id = threading.get_ident()
        _own.call = self
        try:
            return self._function()
        except (StopIteration, GeneratorExit) as error:
            # Neither passes through a future; from an async handler they come as the same RuntimeError.
            raise RuntimeError(f"the handler raised {type(error).__name__}") from error
        finally:
            _own.call = None
            with self._lock:
                self._thread_id = None

    @property
    def interrupted(self) -> bool:
        """Whether it was asked to stop."""
        return self._interrupted

    def defer(self, defers: bool) -> bool:
        """Makes interruptions wait, or not any more; whether there was one. Called by its own thread."""
        with self._lock:
            self._defers = defers
            return self._interrupted

    def interrupt(self) -> None:
        """Asks the call to stop; without effect once it has ended."""
        with self._lock:
            self._interrupted = True
            if self._thread_id is not None and not self._defers:
                import ctypes  # only needed here, and rarely

                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread_id), ctypes.py_object(JobInterrupted))


_own = threading.local()


class Uninterrupted:
    """A block in which the thread of a handler is not torn out of what it does: an interruption waits for its end, and is raised there.

    For what must not be left half done, such as the lock of a future that the loop needs too. The block itself must be short, or look
    at `told` now and then. Other threads, which nobody interrupts, pass through it.
    """

    def __init__(self) -> None:
        self._call: InterruptibleCall | None = getattr(_own, "call", None)

    @property
    def told(self) -> bool:
        """Whether this call has been interrupted."""
        return self._call is not None and self._call.interrupted

    def __enter__(self) -> Uninterrupted:
        if self._call is not None:
            self._call.defer(True)
        return self

    def __exit__(self, *error: object) -> None:
        if self._call is not None and self._call.defer(False):
            raise JobInterrupted
