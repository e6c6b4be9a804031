"""What the tests of the source designs share: tasks that fail on purpose, and short ways to run and to look."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

from mulligan import Job, Mulligan
from mulligan.admin import Admin
from mulligan.core.contract import Store
from tests.builders import done, retry
from tests.conftest import DURABLE, url_of
from tests.faults import FaultyStore
from tests.virtual import Stage

ALWAYS = 1_000_000
IDLE = {"poll": 3_600, "sweep": 3_600}  # a worker that does nothing but what it is woken for


def add(left: int, right: int) -> int:
    """A function that is registered nowhere; tests enqueue it by its path."""
    return left + right


async def nothing() -> None:
    """A handler for jobs that are claimed by hand."""


trapped: list[str] = []


def trap(name: str) -> None:
    """A function that nobody has registered or allowed: it notes that it was called all the same."""
    trapped.append(name)


class Flaky:
    """A task that fails its first runs, and when each of its runs began, in virtual seconds."""

    def __init__(
        self, stage: Stage, failures: int = ALWAYS, *, error: Exception | None = None, lasts_s: float = 0.0, **settings: Any
    ) -> None:
        self.starts: list[float] = []

        async def flaky() -> str:
            self.starts.append(stage.elapsed_s)
            if lasts_s:
                await asyncio.sleep(lasts_s)
            if len(self.starts) <= failures:
                raise error or ConnectionError("down")
            return "up"

        self.task: Any = stage.app.task(**settings)(flaky)

    @property
    def waits(self) -> list[float]:
        """The time between each start and the one before it, to a tenth of a second."""
        return [round(later - earlier, 1) for earlier, later in zip(self.starts, self.starts[1:], strict=False)]


class MeetingStore(FaultyStore):
    """A store on which so many callers of one call wait for each other, so that all have read before any of them writes."""

    def __init__(self, inner: Store, call: str, callers: int) -> None:
        super().__init__(inner)
        self._call = call
        self._barrier = asyncio.Barrier(callers)

    def __getattr__(self, name: str) -> Any:
        target = super().__getattr__(name)
        if name != self._call:
            return target

        async def call(*args: Any, **kwargs: Any) -> Any:
            answer = await target(*args, **kwargs)
            await self._barrier.wait()
            return answer

        return call


class Watched(FaultyStore):
    """Notes what a watcher of the store sees of one job after every settling call, whether or not the caller got an answer."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.seen: list[tuple[str, int, list[str], list[str]]] = []

    def __getattr__(self, name: str) -> Any:
        target = super().__getattr__(name)
        if name != "settle":
            return target

        async def settle(changes: Any) -> Any:
            try:
                return await target(changes)
            finally:
                [job] = await self._inner.get([changes[0].job_id])
                events = [event for event in await self._inner.read_events(0, 100) if event.job_id == changes[0].job_id]
                if job is not None:
                    self.seen.append(
                        (job.status, job.failures, [record.outcome for record in job.history], [event.kind for event in events])
                    )

        return settle


async def drained(stage: Stage, **settings: Any) -> None:
    """Runs a worker until nothing is left to do."""
    async with stage.worker(**settings) as worker:
        await worker.drain()


def change_store(app: Mulligan, store: Any) -> Any:
    """Puts another store, such as a faulty one, under an app that is open; returns it."""
    app.store = store
    app._admin = Admin(store, app.events, app._rng, app._clock)
    return store


async def make_retries(app: Mulligan, task: Any, count: int) -> list[Job]:
    """So many jobs that have failed once and are due again at once, in the retry lane."""
    if count == 0:
        return []
    await app.enqueue_many([task.job() for _ in range(count)])
    jobs = [lease.job for lease in await app.claim(queue=task.definition.queue, limit=count)]
    await app.store.settle([retry(job) for job in jobs])
    return jobs


async def start_order(app: Mulligan, queue: str, claims: int, limit: int = 1) -> list[Job]:
    """The jobs of so many claims in the order in which they would start; each is completed at once."""
    started: list[Job] = []
    for _ in range(claims):
        jobs = [lease.job for lease in await app.claim(queue=queue, limit=limit)]
        await app.store.settle([done(job) for job in jobs])
        started += jobs
    return started


def kinds(app: Mulligan, job_id: str | None = None) -> list[str]:
    """The kinds of the newest events, oldest first."""
    return [event.kind for event in app.events.recent(10_000, job_id=job_id)]


async def crash_worker() -> None:
    """Ends every loop of the running workers where it stands, as a crash does: nothing is flushed, released or told."""
    loops = [task for task in asyncio.all_tasks() if task.get_name().startswith("mulligan-")]
    assert loops
    for task in loops:
        task.cancel()
    await asyncio.gather(*loops, return_exceptions=True)


async def successor(backend: str, folder: Path, stage: Stage) -> Mulligan:
    """The app as it is after a restart: a new one on the same file, or the same one where the store is the process's memory."""
    if backend not in DURABLE:
        return stage.app
    await stage.app.close()
    return Mulligan(url_of(backend, folder), clock=stage.clock, rng=random.Random(2))
