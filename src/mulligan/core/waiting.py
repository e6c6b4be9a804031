"""How a thread without an event loop waits for what another thread does."""

from __future__ import annotations

import threading
from typing import Any


class Waiting:
    """Where a thread leaves its answer for another one that waits: nothing that interrupts the latter can hold up the former.

    A Future is locked for its waiter in Python, where a signal's handler may raise; whoever answers would then wait for that lock for ever.
    """

    __slots__ = ("_answer", "_is_there", "_problem")

    def __init__(self) -> None:
        self._answer: Any = None
        self._problem: BaseException | None = None
        self._is_there = threading.Lock()  # taken until there is an answer
        self._is_there.acquire()

    def set_running_or_notify_cancel(self) -> bool:
        """Whether the answer is still wanted: always."""
        return True

    def set_result(self, answer: Any) -> None:
        """Hands the answer over."""
        self._answer = answer
        self._is_there.release()

    def set_exception(self, problem: BaseException) -> None:
        """Hands over what was raised."""
        self._problem = problem
        self._is_there.release()

    def result(self) -> Any:
        """The answer, once it is there. To be asked for once."""
        self._is_there.acquire()
        if self._problem is not None:
            raise self._problem
        return self._answer
