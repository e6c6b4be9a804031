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

GATHER_MAX = 1_000  # jobs in one write; a longer insert gains nothing by company
GATHER_CHARS_MAX = 16 * 1024 * 1024  # of payloads, after which no others join: a server takes a write as one message, or not at all

Write = Callable[[Sequence[NewJob]], Awaitable[list[Inserted]]]
Part = tuple[Sequence[NewJob], "asyncio.Future[list[Inserted]]"]


class Gatherer:
    """The inserts of one event loop: so many writes under way at most, while others gather. Touched by that loop only."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._waiting: list[Part] = []
        self._writes = self._jobs = 0  # under way
        self._coming = 0  # of callers who have just got their answers, and mostly go on at once
        self._tasks: set[asyncio.Task[None]] = set()
        self.at_once = 1  # with two, the store works on one while the callers of the other make their next jobs

    async def insert(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        """The answers for these jobs, whoever they were written with."""
        if self._coming or self._writes >= self.at_once:
            future: asyncio.Future[list[Inserted]] = asyncio.get_running_loop().create_future()
            self._waiting.append((jobs, future))
            return await future
        self._begin(len(jobs))
        try:
            return await self._write(jobs)
        finally:
            self._end(len(jobs))
            self._go_on()

    def _begin(self, jobs: int) -> None:
        self._writes += 1
        self._jobs += jobs

    def _end(self, jobs: int) -> None:
        self._writes -= 1
        self._jobs -= jobs

    def _go_on(self) -> None:
        while self._waiting and self._writes < self.at_once:
            self._start_next()
            if self._coming:
                return  # more is there in a moment, and then this is called again

    def _start_next(self) -> None:
        """A write of its share of all there are: so writes that go at once become equally wide, and do not end together."""
        share = -(-(self._jobs + self._coming + sum(len(jobs) for jobs, _ in self._waiting)) // self.at_once)
        parts: list[Part] = []
        many = chars = 0
        while self._waiting and many < min(share, GATHER_MAX) and chars < GATHER_CHARS_MAX:
            part = self._waiting.pop(0)
            if not part[1].done():  # whoever was cancelled meanwhile wants nothing any more
                parts.append(part)
                many += len(part[0])
                for job in part[0]:
                    chars += len(job.payload)
        if parts:
            self._begin(many)
            task = asyncio.get_running_loop().create_task(self._insert_all(parts, many))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _go_on_after_callers(self, many: int) -> None:
        self._coming -= many
        self._go_on()

    async def _insert_all(self, parts: list[Part], many: int) -> None:
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
            self._end(many)
            self._coming += many
            asyncio.get_running_loop().call_soon(self._go_on_after_callers, many)


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
