"""Wake-ups inside one process: a hint reaches a sleeper on any event loop, from any thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable


class LocalListener:
    """One sleeper's ear. It is hinted or not, and closed or not; a hint that comes before the wait is kept for it."""

    def __init__(self, forget: Callable[[LocalListener], None]) -> None:
        self._forget = forget
        self._lock = threading.Lock()
        self._hinted = False
        self._closed = False
        self._sleeper: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    async def wait(self, timeout_s: float) -> bool:
        """True as soon as a hint has come since the last wait; False when the time is over or the listener is closed."""
        alarm = asyncio.Event()
        with self._lock:
            if not self._hinted and not self._closed:
                self._sleeper = (asyncio.get_running_loop(), alarm)
            else:
                alarm.set()
        try:
            async with asyncio.timeout(timeout_s):
                await alarm.wait()
        except TimeoutError:
            pass  # A hint may still have come in the meantime, so the flag decides, not the timer.
        finally:
            with self._lock:
                self._sleeper = None
        with self._lock:
            hinted, self._hinted = self._hinted, False
        return hinted

    def hint(self) -> None:
        """Wakes the sleeper, or lets its next wait end at once."""
        with self._lock:
            self._hinted = True
            self._wake()

    def close(self) -> None:
        """Ends a running wait, and gets no more hints."""
        self._forget(self)
        with self._lock:
            self._closed = True
            self._wake()

    def _wake(self) -> None:
        if self._sleeper is None:
            return
        loop, alarm = self._sleeper
        try:
            loop.call_soon_threadsafe(alarm.set)
        except RuntimeError:
            self._sleeper = None  # Its loop was closed while it slept; nobody is left to wake.


class LocalListeners:
    """All ears of one store in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[LocalListener, None] = {}  # in the order of their making, so that a simulation wakes them alike every time

    def listen(self) -> LocalListener:
        """A new ear."""
        listener = LocalListener(self._forget)
        with self._lock:
            self._listeners[listener] = None
        return listener

    def hint(self) -> None:
        """Wakes all of them."""
        for listener in self._all():
            listener.hint()

    def close(self) -> None:
        """Closes all of them."""
        for listener in self._all():
            listener.close()

    def _all(self) -> list[LocalListener]:
        with self._lock:
            return list(self._listeners)

    def _forget(self, listener: LocalListener) -> None:
        with self._lock:
            self._listeners.pop(listener, None)
