"""Work under way while something breaks: a worker, a producer that goes on, and a ledger of what was acknowledged and what ran."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import count
from typing import Any

from mulligan import Constant, Context, Event, Mulligan, RetryPolicy, StoreUnavailable

PATIENCE_S = 50.0
_number = count(1)


def place(url: str) -> str:
    """An empty namespace on a server of the test's own."""
    name, joint = f"drain{next(_number)}", "&" if "?" in url else "?"
    if url.startswith("mongodb"):
        before, _, options = url.partition("?")
        scheme, _, rest = before.partition("://")
        return f"{scheme}://{rest.split('/')[0]}/{name}?{options}"
    return f"{url}{joint}{'schema' if url.startswith('postgres') else 'app'}={name}"


def option(url: str, text: str) -> str:
    """The URL with one more option."""
    return f"{url}{'&' if '?' in url else '?'}{text}"


class Drain:
    """An app with one task, its ledger, and what was acknowledged to its producers."""

    def __init__(self, url: str) -> None:
        self.app = Mulligan(url, retry=RetryPolicy(max_retries=5, backoff=Constant(delay=0.05), jitter="none"))
        self.accepted: set[str] = set()  # enqueued, and acknowledged
        self.starts: Counter[str] = Counter()
        self.completed: set[str] = set()  # acknowledged by the store as done
        self.reruns: list[str] = []  # started although acknowledged as done
        self.events: Counter[str] = Counter()
        self.app.events.subscribe(self._hear)

        @self.app.task(name="work")
        async def work(ctx: Context, seconds: float) -> str:
            self.starts[ctx.job.id] += 1
            if ctx.job.id in self.completed:
                self.reruns.append(ctx.job.id)
            await asyncio.sleep(seconds)
            return ctx.job.id

        self.work = work

    def _hear(self, event: Event) -> None:
        self.events[event.kind] += 1
        if event.kind == "COMPLETED":
            self.completed.add(event.job_id)

    async def produce(self, jobs: int, *, pause_s: float = 0.0, seconds: float = 0.002) -> None:
        """Enqueues one after the other; a call the store does not answer is made again until it does, under the same id."""
        for _ in range(jobs):
            job = self.work.job(seconds)
            while True:
                try:
                    [handle] = await self.app.enqueue_many([job])
                except StoreUnavailable:
                    await asyncio.sleep(0.05)
                else:
                    break
            self.accepted.add(handle.id)
            await asyncio.sleep(pause_s)

    async def until_completed(self, jobs: int) -> None:
        """Waits for so many acknowledged successes."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.completed) < jobs:
                await asyncio.sleep(0.01)

    async def check(self, *, starts_max: int = 1) -> None:
        """Nothing lost, nothing acknowledged ran again, nothing that nobody asked for, no attempt charged for the store's trouble."""
        stored = [job async for job in self.app.jobs()]
        assert {job.id for job in stored} >= self.accepted
        assert {job.status for job in stored} == {"done"}
        assert self.completed == {job.id for job in stored} == set(self.starts)
        assert self.reruns == []
        assert max(self.starts.values()) <= starts_max
        assert {(job.attempts, job.failures, job.crashes) for job in stored if self.starts[job.id] == 1} == {(1, 0, 0)}

    def worker(self, **settings: Any) -> Any:
        """A worker whose leases outlast every outage here."""
        return self.app.worker(**{"concurrency": 20, "poll": 0.2, "lease": 60, **settings})
