"""Opening something once for many callers, on several event loops and threads, and again in a forked child."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future


class OpenOnce:
    """Nobody has asked → one caller opens, the others wait for it → open. A failure lets the next caller try again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._opening: Future[bool] | None = None
        self._is_open = False  # what every call asks, most of all
        self._pid = os.getpid()

    @property
    def begun(self) -> bool:
        """Whether anybody has asked yet."""
        return self._opening is not None

    @property
    def is_open(self) -> bool:
        """Whether it is open in this process, so that `run` would do nothing."""
        return self._is_open and self._pid == os.getpid()

    async def run(self, open_it: Callable[[], Awaitable[None]]) -> None:
        """Returns when it is open; raises what opening raised."""
        if self.is_open:
            return
        self._notice_fork()
        with self._lock:
            opening = self._opening
            first = opening is None
            if opening is None:
                opening = self._opening = Future()
                opening.set_running_or_notify_cancel()  # else a waiter that is cancelled would cancel it for all
        if not first:
            opened = opening.result() if opening.done() else await asyncio.wrap_future(opening)
            if not opened:
                await self.run(open_it)
            return
        try:
            await open_it()
        except BaseException as error:
            self._opening = None  # the next call may try again
            if isinstance(error, Exception):
                opening.set_exception(error)
            else:  # cancelled, which says nothing about the store: those who wait try for themselves
                opening.set_result(False)
            raise
        with self._lock:
            self._is_open = self._opening is opening  # else it was closed meanwhile
        opening.set_result(True)

    def forget(self) -> None:
        """It was closed: the next caller opens it again."""
        with self._lock:
            self._opening, self._is_open = None, False

    def _notice_fork(self) -> None:
        """What the parent opened works through threads that stayed with the parent, so the child opens its own."""
        if self._pid != os.getpid():
            self._lock = threading.Lock()  # the parent may have held the old one at the moment of the fork
            self._pid = os.getpid()
            self._opening, self._is_open = None, False
