"""Single inserts that come at the same time go to the store together.

Each call would cost a round trip and a commit of its own, and each answer has to cross from the store's thread to the loop by itself:
on a busy loop a hundred such crossings cost more than the write. So inserts that come while one is under way gather here, and go as one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from mulligan.core.contract import Inserted
from mulligan.core.errors import StoreRejected
from mulligan.core.job import NewJob

GATHER_MAX = 512  # jobs in one write; a longer insert gains nothing by company

Write = Callable[[Sequence[NewJob]], Awaitable[list[Inserted]]]
Part = tuple[Sequence[NewJob], "asyncio.Future[list[Inserted]]"]


class Gatherer:
    """The inserts of one event loop: idle, or one write under way while others gather. Touched by that loop only."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._waiting: list[Part] = []
        self._busy = False
        self._task: asyncio.Task[None] | None = None

    async def insert(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        """The answers for these jobs, whoever they were written with."""
        if self._busy:
            future: asyncio.Future[list[Inserted]] = asyncio.get_running_loop().create_future()
            self._waiting.append((jobs, future))
            return await future
        self._busy = True
        try:
            return await self._write(jobs)
        finally:
            self._go_on()

    def _go_on(self) -> None:
        parts: list[Part] = []
        jobs = 0
        while self._waiting and jobs < GATHER_MAX:
            part = self._waiting.pop(0)
            if not part[1].done():  # whoever was cancelled meanwhile wants nothing any more
                parts.append(part)
                jobs += len(part[0])
        self._busy = bool(parts)
        self._task = asyncio.get_running_loop().create_task(self._insert_all(parts)) if parts else None

    async def _insert_all(self, parts: list[Part]) -> None:
        try:
            answers = await self._write([job for jobs, _ in parts for job in jobs])
        except StoreRejected:
            # One of them cannot be stored; alone, each gets the answer that is its own.
            for jobs, future in parts:
                await _answer(future, self._write(jobs))
        except BaseException as problem:  # noqa: BLE001 - whoever waits gets it
            for _, future in parts:
                _fail(future, problem)
        else:
            at = 0
            for jobs, future in parts:
                if not future.done():
                    future.set_result(answers[at : at + len(jobs)])
                at += len(jobs)
        finally:
            # After those who have just got their answers: whoever goes on at once is there for the next write, instead of one of them
            # going alone while the others wait for him.
            asyncio.get_running_loop().call_soon(self._go_on)


async def _answer(future: asyncio.Future[list[Inserted]], writing: Awaitable[list[Inserted]]) -> None:
    try:
        answers = await writing
    except BaseException as problem:  # noqa: BLE001 - whoever waits gets it
        _fail(future, problem)
    else:
        if not future.done():
            future.set_result(answers)


def _fail(future: asyncio.Future[list[Inserted]], problem: BaseException) -> None:
    if future.done():
        return
    if isinstance(problem, Exception):
        future.set_exception(problem)
    else:  # the loop is being ended
        future.cancel()
