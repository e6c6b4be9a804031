"""play: feeds an app and runs its workers until everything has come to rest."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any, Protocol

from mulligan.sim.recorder import Recorder
from mulligan.worker.worker import Worker


class Employs(Protocol):
    """What makes workers: an app."""

    def worker(self, **settings: Any) -> Worker: ...


async def play(
    app: Employs, recorder: Recorder, *feeds: Coroutine[Any, Any, None], workers: int = 1, until_s: float | None = None, **settings: Any
) -> None:
    """Runs so many workers while the feeds last, and then until every job has come to rest; with `until_s`, only until that time."""
    async with AsyncExitStack() as stack:
        staff = [await stack.enter_async_context(app.worker(keeper_thread=False, **settings)) for _ in range(workers)]
        fed = asyncio.gather(*feeds)
        if until_s is not None:
            await asyncio.sleep(until_s - asyncio.get_running_loop().time())
            fed.cancel()
            return
        await fed
        await recorder.wait_at_rest()
        for worker in staff:
            await worker.drain()
