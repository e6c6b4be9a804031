"""The line of jobs that wait to run alone, and the child that runs them, one after the other.

What waits here is held under a lease, and if this process dies it is charged a crash: for these jobs the last one, without a start. So
they wait behind others only, not for a process to come up. Until there is one they are given back, and come again a moment later.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence

from mulligan.core.change import Grip
from mulligan.core.clock import SECOND_US
from mulligan.core.contract import Store
from mulligan.core.job import Job
from mulligan.worker.cells import NO_ROOM, NOBODY_YET, monotonic_us
from mulligan.worker.child import Child
from mulligan.worker.deaths import Deaths, Loss
from mulligan.worker.link import Holding

log = logging.getLogger("mulligan.supervisor")
LINE_MAX = 10  # their leases are renewed while they wait, so few may wait long
OPEN_MAX = 2  # with so many in line no more are asked for; some may be on their way
OPEN_US = SECOND_US // 2
COME_SOON_US = SECOND_US // 2  # for a job that finds no process, which takes about as long to start
COME_AGAIN_US = 5 * SECOND_US  # for a job that finds the line full, or no process to be had
IDLE_S = 5.0  # the child is kept so long for the next one
AGAIN_S = 1.0  # pause after a child that did not start, or a store that did not answer
CELL = 0  # it runs one job at a time


class SoloLine:
    """`add` takes jobs over from the children that claimed them; `run` is its loop. `begin` starts a child, `let_go` tells one to end."""

    def __init__(self, store: Store, deaths: Deaths, begin: Callable[[], Child], let_go: Callable[[Child], None]) -> None:
        self._store = store
        self._deaths = deaths
        self._begin = begin
        self._let_go = let_go
        self._line: deque[Holding] = deque()
        self._owner = ""
        self._more = asyncio.Event()
        self._wanted = False  # jobs will come again, and there should be a child by then
        self._cannot_start = False
        self._giving_back: set[asyncio.Task[int]] = set()
        self.child: Child | None = None

    def __len__(self) -> int:
        return len(self._line)

    def add(self, jobs: Sequence[Holding], owner: str) -> None:
        """Takes jobs that have to run alone; what finds the line full, or nobody to run it, is given back, to come again."""
        self._owner = owner
        self._wanted = True
        self._more.set()
        if not self._is_up():
            self._come_again(jobs)
            return
        room = max(0, LINE_MAX - len(self._line))
        self._line += jobs[:room]
        if jobs[room:]:
            self._give_back(jobs[room:], "the line of jobs that run alone is full", COME_AGAIN_US)

    def open_until_us(self) -> int:
        """Until when jobs may be passed on to here, on the clock of the cells: not long, since this process may stand still meanwhile."""
        if self._cannot_start or len(self._line) >= OPEN_MAX:
            return NO_ROOM
        return monotonic_us() + OPEN_US if self._is_up() else NOBODY_YET

    def _is_up(self) -> bool:
        return self.child is not None and self.child.is_up

    def _come_again(self, jobs: Sequence[Holding]) -> None:
        delay_us = COME_AGAIN_US if self._cannot_start else COME_SOON_US
        self._give_back(jobs, "it has to run alone, in a process that is not there yet", delay_us)

    def _give_back(self, jobs: Sequence[Holding], reason: str, delay_us: int = 0) -> None:
        self._settle([Loss(job.job_id, job.fence, "release", reason, delay_us=delay_us) for job in jobs])

    def _settle(self, losses: Sequence[Loss]) -> None:
        task = asyncio.create_task(self._deaths.settle(losses, self._owner))
        self._giving_back.add(task)
        task.add_done_callback(self._giving_back.discard)

    def grips(self) -> list[Grip]:
        """What to renew while it waits."""
        return [Grip(job.job_id, job.fence) for job in self._line]

    async def close(self) -> None:
        """Gives back what waits."""
        if self._line:
            waiting, self._line = list(self._line), deque()
            self._give_back(waiting, "the worker shut down before it started")
        if self._giving_back:
            await asyncio.gather(*self._giving_back)

    async def run(self) -> None:
        """The loop; ends by cancellation."""
        while True:
            if not self._line and not self._wanted:
                await self._wait_for_more()
                continue
            if not self._is_up():
                waiting, self._line = list(self._line), deque()
                if waiting:
                    self._come_again(waiting)
                await self._start_child()
            self._wanted = False
            if not self._line or self.child is None:
                continue
            child = self.child
            holding = self._line[0]
            try:
                job = await self._job_of(holding)
            except Exception as error:  # noqa: BLE001 - whatever it is, one job that waits must not cost the whole fleet
                log.warning("a job that is to run alone cannot be read, trying again: %s", error)
                await asyncio.sleep(AGAIN_S)
                continue
            if child.ended.done():
                continue
            self._line.popleft()  # from here on it is among what the child holds: nothing may happen in between
            if job is not None and job.cancel_requested:
                self._settle([Loss(job.id, job.fence, "cancel", "cancelled before it started")])
            elif job is not None:
                child.feed(CELL, job)
                await child.idle.wait()

    async def _wait_for_more(self) -> None:
        self._more.clear()
        try:
            await asyncio.wait_for(self._more.wait(), IDLE_S if self.child is not None else None)
        except TimeoutError:
            if self.child is not None and not self.child.ended.done():
                self._let_go(self.child)
            self.child = None

    async def _start_child(self) -> None:
        """Starts the child, and waits until it is ready, or has ended before it was."""
        try:
            self.child = self._begin()
            await asyncio.wait({self.child.is_ready})
        except OSError as error:
            log.error("the process for jobs that run alone cannot be started: %s", error)
        self._cannot_start = not self._is_up()
        if self._cannot_start:
            await asyncio.sleep(AGAIN_S)

    async def _job_of(self, holding: Holding) -> Job | None:
        """The job as it is stored; None if it is no longer held."""
        [job] = await self._store.get([holding.job_id])
        if job is None or job.status != "processing" or job.fence != holding.fence:
            return None
        return job
