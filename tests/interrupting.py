"""Interruptions like those of signals, wherever one can strike: for code that must leave nothing half done."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType


class Interruption(KeyboardInterrupt):
    """What the handler of a signal raises."""


class _Interrupter:
    """Raises where the handler of a signal could: as a function of Python begins, or a call of compiled code has come back."""

    def __init__(self, after: int) -> None:
        self._left = after
        self.has_raised = False

    def see(self, frame: FrameType, event: str, _: object) -> None:
        """To be told of every call."""
        if event not in ("call", "c_return") or frame.f_code.co_filename == __file__:
            return
        self._left -= 1
        if self._left < 0:
            sys.setprofile(None)
            self.has_raised = True
            raise Interruption


def interrupted(work: Callable[[], object], after: int) -> bool:
    """Runs the work on this thread; whether it had so many steps, and was interrupted at the last of them."""
    interrupter = _Interrupter(after)
    with suppress(Interruption):
        try:
            sys.setprofile(interrupter.see)
            work()
        finally:
            sys.setprofile(None)
    return interrupter.has_raised
