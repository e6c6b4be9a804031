"""SAQ on Redis: one process, uvloop; finished jobs are not kept."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import adapter
import jobs
from saq import Queue, Worker

CONCURRENCY = adapter.tuned("concurrency")


async def noop(_context: Any, *, number: int) -> None:
    """Handlers are found by their names."""
    jobs.noop(number)


async def storm(context: Any, *, number: int) -> None:
    """Likewise."""
    jobs.storm(number, context["job"].attempts)


async def probe(_context: Any, *, number: int) -> None:
    """Likewise."""
    jobs.probe(number)


async def mortal(_context: Any, *, number: int) -> None:
    """Likewise."""
    await jobs.mortal_async(number)


class Sender:
    """Enqueues. There is no bulk call."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    async def one(self, kind: str, number: int) -> None:
        """One job."""
        await self._queue.enqueue(kind, number=number, retries=jobs.ATTEMPTS, ttl=-1)


class SaqPeer:
    """The adapter."""

    def prepare(self, url: str) -> None:
        """Nothing has to be made."""

    async def sender(self, url: str) -> Sender:
        """Enqueues."""
        return Sender(Queue.from_url(url))

    async def left(self, url: str) -> Callable[[], Awaitable[int]]:
        """What waits, runs or is to be tried again."""
        queue = Queue.from_url(url)

        async def count() -> int:
            return await queue.count("incomplete")

        return count

    async def work(self, url: str) -> None:
        """Its worker, which ends by itself on SIGTERM."""
        worker: Any = Worker(Queue.from_url(url), functions=[noop, storm, probe, mortal], concurrency=CONCURRENCY)
        working = asyncio.create_task(worker.start())
        await asyncio.sleep(0)
        adapter.ready()
        await working


if __name__ == "__main__":
    adapter.main(SaqPeer())
