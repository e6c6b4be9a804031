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

    def __call__(self) -> Any:
        with self._lock:
            if self._interrupted:
                raise JobInterrupted
            self._thread_id = threading.get_ident()
        try:
            return self._function()
        except (StopIteration, GeneratorExit) as error:
            # Neither passes through a future; from an async handler they come as the same RuntimeError.
            raise RuntimeError(f"the handler raised {type(error).__name__}") from error
        finally:
            with self._lock:
                self._thread_id = None

    def interrupt(self) -> None:
        """Asks the call to stop; without effect once it has ended."""
        with self._lock:
            self._interrupted = True
            if self._thread_id is not None:
                import ctypes  # only needed here, and rarely

                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread_id), ctypes.py_object(JobInterrupted))
