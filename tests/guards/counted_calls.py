"""Calls of Python functions in all threads of this process, counted: work that no machine does faster or slower."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from types import FrameType
from typing import Any


class CallCount:
    """Calls of functions, and steps of coroutines and generators. Calls of functions written in C are not counted."""

    def __init__(self) -> None:
        self._numbers = count()  # counts in one step, so that no thread misses a call of another

    def see(self, frame: FrameType, event: str, _: Any) -> None:
        """To be told of every call."""
        if event == "call":
            next(self._numbers)

    @property
    def calls(self) -> int:
        """How many there were so far."""
        return int(self._numbers.__reduce__()[1][0])


@contextmanager
def calls_counted() -> Iterator[CallCount]:
    """Counts the calls of this thread and of all threads that start meanwhile."""
    found = CallCount()
    before = sys.getprofile()
    threading.setprofile(found.see)
    sys.setprofile(found.see)
    try:
        yield found
    finally:
        sys.setprofile(before)
        threading.setprofile(None)  # type: ignore[arg-type]  # what it was before
