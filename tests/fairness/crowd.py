"""Claimers side by side: real workers whose handler does nothing but write down that it was started."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

from msgspec.structs import replace

from mulligan import Context, Mulligan, Queue
from mulligan.core.ids import new_id
from mulligan.core.job import Lane, first_row
from mulligan.worker.worker import Worker
from tests.builders import grouped
from tests.fairness.bound import Worst, check

Line = tuple[str, Lane, int]  # queue, lane and priority
BATCH = 2_000
TELL_EVERY = 100_000


class Start(NamedTuple):
    """One start of a handler: what was started, and by whom."""

    queue: str
    lane: Lane
    priority: int
    worker: str
    claim_id: str  # made when the claim began; later ones of this process sort behind it


class Crowd:
    """An app, its backlog, and the order in which all its workers start jobs."""

    def __init__(self, app: Mulligan, *queues: Queue) -> None:
        self.app = app
        self.queues = queues
        self.starts: list[Start] = []
        self.stored: Counter[Line] = Counter()
        self._holding: Counter[str] = Counter()  # by queue: the most that those workers can hold which ever claimed from it
        self._expected = 0
        self._reached: asyncio.Future[None] | None = None
        self._gate = asyncio.Event()  # shut while handlers shall wait
        self._gate.set()
        self._holds = False
        app.queues(*queues)
        app.task(name="work")(self._work)

    async def _work(self, ctx: Context) -> None:
        job = ctx.job
        self.starts.append(Start(job.queue, job.lane, job.priority, job.lease_owner or "", job.claim_id or ""))
        if len(self.starts) >= self._expected and self._reached is not None and not self._reached.done():
            self._reached.set_result(None)
            if self._holds:
                self._gate.clear()
        await self._gate.wait()

    async def store_jobs(self, count: int, lane: Lane, *, queue: str = "q", priority: int = 0, tenants: int = 0) -> None:
        """Stores jobs of one lane, all due at one instant; those of several tenants come in turn."""
        await self.app.open()
        now_us = await self.app.store.now_us()
        fair_keys = [f"tenant {number}" for number in range(tenants)] or [None]
        rows = [first_row(grouped(queue, priority=priority, fair=fair_key), now_us) for fair_key in fair_keys]
        if lane == "retry":
            rows = [replace(row, lane="retry", attempts=1, failures=1, fence=1) for row in rows]
        for begin in range(0, count, BATCH):
            places = range(begin, min(begin + BATCH, count))
            assert all(await self.app.store.restore([replace(rows[place % len(rows)], id=new_id(now_us)) for place in places]))
            if places.stop % TELL_EVERY == 0:
                print(f"  stored {places.stop:,} of {count:,} ({lane})", flush=True)
        self.stored[queue, lane, priority] += count

    def worker(self, *, queues: Sequence[str] | None = None, **settings: Any) -> Worker:
        """A worker for some of the queues, or for all."""
        names = [queue.name for queue in self.queues] if queues is None else list(queues)
        worker = self.app.worker(queues=names, **settings)
        for name in names:
            self._holding[name] += worker.settings.concurrency + worker.settings.width_on(self.app.store).ahead
        return worker

    async def run(self, starts: int, workers: Iterable[Worker]) -> list[Start]:
        """Lets these workers start so many jobs, and a few more until they have stopped; what they started, in its order."""
        first = len(self.starts)
        async with AsyncExitStack() as stack:
            reached = self.reached(starts)
            await asyncio.gather(*(stack.enter_async_context(worker) for worker in workers))
            await reached
        return self.starts[first:]

    def reached(self, more: int, *, hold: bool = False) -> asyncio.Future[None]:
        """Done when so many more jobs have been started. With `hold`, handlers then wait until the next call."""
        self._expected, self._reached = len(self.starts) + more, asyncio.get_running_loop().create_future()
        self._holds = hold
        self._gate.set()
        return self._reached

    def while_all_wait(self, starts: Sequence[Start], queue: str = "q") -> list[Start]:
        """Of the newest starts, those of this queue up to where one of its lanes and levels may have been empty: the rest of it claimed."""
        before = Counter(_line_of(start) for start in self.starts[: len(self.starts) - len(starts)])
        left = {line: count - before[line] - self._holding[queue] for line, count in self.stored.items() if line[0] == queue}
        own = [start for start in starts if start.queue == queue]
        for place, start in enumerate(own):
            left[_line_of(start)] -= 1
            if min(left.values()) < 0:
                return own[:place]
        return own


def _line_of(start: Start) -> Line:
    return start.queue, start.lane, start.priority


def check_starts(starts: Sequence[Start], share: float, claimers: int) -> tuple[Worst, float]:
    """Holds the starts of a queue against the bound: all together for so many claimers, and those of each claimer by themselves.

    The second implies the first: what a window of all lacks is the sum of what each claimer's part of it lacks.
    """
    whole = check([start.lane for start in starts], share, claimers)
    by_worker: dict[str, list[str]] = {}
    for start in starts:
        by_worker.setdefault(start.worker, []).append(start.lane)
    assert len(by_worker) <= claimers
    return whole, max(check(lanes, share, 1).lacks for lanes in by_worker.values())


def backlog(starts: int, share: float, workers: int, settings: dict[str, int]) -> dict[Lane, int]:
    """How many jobs of each lane have to wait, so that both still do after so many starts."""
    spare = workers * (settings["concurrency"] + settings["ahead"] + 1) + 1
    return {"fresh": round(starts * (1 - share)) + spare, "retry": round(starts * share) + spare}
