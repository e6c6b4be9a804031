"""The inserts of one event loop: gathered, and after a while over a connection of its own.

A driver belongs to one loop, so calls cross to the store's thread and back (home.py). For a single small insert the two crossings cost more
than the insert. So a loop that goes on inserting gets a connection that belongs to it. One that ends soon does not: a program may begin a
new loop for every call, and connecting costs more than it would save.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import NamedTuple

from mulligan.core.contract import Inserted
from mulligan.core.job import NewJob
from mulligan.stores.gather import Gatherer, Write

OFTEN = 50  # writes of a loop before it gets its connection


def _always(_jobs: Sequence[NewJob]) -> bool:
    return True


class Direct(NamedTuple):
    """Inserts over a connection of the running loop, made by the first of them, and made anew when it breaks."""

    insert: Write
    close: Callable[[], Awaitable[None]]
    takes: Callable[[Sequence[NewJob]], bool] = _always  # only what is one statement: a loop that is held up must hold up nobody else


class LoopInserts:
    """One per store and loop. Touched by that loop only."""

    def __init__(self, through_home: Write, connect: Callable[[], Direct | None], connections: int = 1) -> None:
        self._through_home = through_home
        self._connect = connect
        self._connections = connections
        self._lines: list[tuple[Direct, asyncio.Lock]] = []
        self._life: AsyncGenerator[None, None] | None = None
        self._writes = 0
        self._gatherer = Gatherer(self._write)
        self.insert = self._gatherer.insert

    async def _write(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        self._writes += 1
        if self._writes == OFTEN:
            directs = [direct for _ in range(self._connections) if (direct := self._connect()) is not None]
            self._life = _life(directs)
            await anext(self._life)
            self._lines = [(direct, asyncio.Lock()) for direct in directs]
            self._gatherer.at_once = max(1, len(directs))
        for direct, writing in self._lines:
            if not writing.locked() and direct.takes(jobs):
                async with writing:
                    return await direct.insert(jobs)
        return await self._through_home(jobs)

    async def close(self) -> None:
        """Lets go of the connections, after what is being written."""
        lines, self._lines = self._lines, []
        self._gatherer.at_once = 1
        for _, writing in lines:
            await writing.acquire()  # for good: nobody writes there any more
        life, self._life = self._life, None
        if life is not None:
            await life.aclose()


async def _life(directs: Sequence[Direct]) -> AsyncGenerator[None, None]:
    """As long as its loop: one that ends, as asyncio.run ends it, first ends the generators that are left."""
    try:
        yield
    finally:
        for direct in directs:
            await direct.close()
