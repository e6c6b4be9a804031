"""Wake-up hints that come over the network, passed on to the sleepers of this process.

One subscription per store feeds any number of listeners. It may break at any time: then it is made again, after a jittered while that
grows, and the listeners get a hint as soon as it stands, for what they may have missed. Polling alone is always enough.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from mulligan.core.clock import system_rng
from mulligan.stores.listener import LocalListener

WAIT_MIN_S, WAIT_MAX_S = 0.1, 5.0
CANCEL_AGAIN_S = 0.1
log = logging.getLogger("mulligan.hints")


class Hints:
    """The ears of one store. `subscribe` runs on the store's home loop until it breaks: it calls `heard` for each hint that comes,
    and once as soon as it is able to hear."""

    def __init__(self, subscribe: Callable[[Callable[[], None]], Coroutine[Any, Any, None]], rng: random.Random | None = None) -> None:
        self._subscribe = subscribe
        self._rng = rng or system_rng()
        self._door = threading.Lock()
        self._listeners: set[LocalListener] = set()
        self._task: asyncio.Task[None] | None = None
        self._stood = False
        self.trouble = ""  # why no hints come; empty while they do

    def listen(self) -> LocalListener:
        """A new ear; close it when done."""
        listener = LocalListener(self._forget)
        with self._door:
            self._listeners.add(listener)
        return listener

    def hint(self) -> None:
        """Wakes the sleepers of this process. Callable from any thread."""
        with self._door:
            listeners = list(self._listeners)
        for listener in listeners:
            listener.hint()

    def begin(self) -> None:
        """Starts the subscription; to be called on the home loop. A second call changes nothing."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._keep_subscribed())

    async def end(self) -> None:
        """Ends the subscription and every wait."""
        task, self._task = self._task, None
        while task is not None and not task.done():
            task.cancel()  # more than once, since a driver may swallow it while it cleans up
            await asyncio.wait({task}, timeout=CANCEL_AGAIN_S)
        with self._door:
            listeners = list(self._listeners)
        for listener in listeners:
            listener.close()

    def _heard(self) -> None:
        self._stood = True
        self.trouble = ""
        self.hint()

    async def _keep_subscribed(self) -> None:
        wait_s = WAIT_MIN_S
        while True:
            self._stood = False
            try:
                await self._subscribe(self._heard)
            except Exception as problem:  # noqa: BLE001 - whatever a driver raises, hints are only hints
                self.trouble = f"{type(problem).__name__}: {problem}"[:300]
                log.debug("wake-up hints broke, subscribing again: %s", self.trouble)
            wait_s = WAIT_MIN_S if self._stood else min(WAIT_MAX_S, wait_s * 2)
            await asyncio.sleep(self._rng.uniform(WAIT_MIN_S, wait_s))

    def _forget(self, listener: LocalListener) -> None:
        with self._door:
            self._listeners.discard(listener)
