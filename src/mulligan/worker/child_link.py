"""A child's end of the link to its supervisor: tells what it claims, holds and lets go; hears of lost leases, cancels and the end.

The order is what counts. A claim is announced before it is made, its jobs are told before any of their handlers starts, and a cell is
said to be free before it is given to another job. So whenever the child dies, its supervisor can tell what it held, and what had started.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
import socket
import threading
from collections.abc import Callable, Sequence

from mulligan.core.contract import Renewal, WorkerInfo
from mulligan.core.job import Job
from mulligan.worker.cells import NO_ROOM, Cells, monotonic_us
from mulligan.worker.executor import Executor
from mulligan.worker.keeper import BEAT_MAX_S, RENEWALS_PER_LEASE
from mulligan.worker.link import Answers, Claiming, Dropped, Feed, Held, Hello, Holding, Leaving, Link, Message, Report, Stop
from mulligan.worker.policies import Policies
from mulligan.worker.run import Run
from mulligan.worker.solo import Feeder, alone_rule
from mulligan.worker.store_time import StoreTime

log = logging.getLogger("mulligan.link")
Grip = tuple[str, int]
KEPT_LOOK_S = 0.05


class WatchedRun(Run):
    """A run whose start and end a supervisor can see, and whose lease it keeps."""

    __slots__ = ("_cell", "_cells")

    def __init__(self, job: Job, held_until_s: float, cells: Cells, cell: int) -> None:
        super().__init__(job, held_until_s)
        self._cells = cells
        self._cell = cell

    def is_sure(self, now_s: float) -> bool:
        return now_s < self.held_until_s or monotonic_us() < self._cells.kept_until_us(self._cell)

    def begin(self) -> None:
        self.in_handler = True
        self._cells.start(self._cell)

    def end(self) -> None:
        self.in_handler = False
        self._cells.end(self._cell)


class ChildLink:
    """One per child process. `on_stop`, `on_gone`, `on_answers` and `on_feed` are called with what the parent says."""

    def __init__(self, link_fd: int, cells_fd: int, *, solo: bool = False) -> None:
        for fd in (link_fd, cells_fd):
            os.set_inheritable(fd, False)  # what a handler starts must not keep the link open
        self.solo = solo
        self.cells = Cells(cells_fd)
        os.close(cells_fd)
        self._fd = link_fd
        self._link = Link(socket.socket(fileno=link_fd), self._on_message, lambda: self.on_gone())
        self._free = list(range(self.cells.count - 1, -1, -1))
        self._by_grip: dict[Grip, int] = {}
        self._dropped: list[int] = []
        self._room: asyncio.Future[None] | None = None
        self.on_stop: Callable[[str, bool], None] = lambda _reason, _hurry: None
        self.on_gone: Callable[[], None] = lambda: None
        self.on_answers: Callable[[Sequence[Renewal]], None] = lambda _renewals: None
        self.on_feed: Callable[[Job], None] = lambda _job: None
        self.must_run_alone: Callable[[Job], bool] = lambda _job: False

    def listen(self) -> None:
        """Hears the parent from now on, on the running loop."""
        self._link.listen()

    def _on_message(self, message: Message) -> None:
        if isinstance(message, Answers):
            self.on_answers(message.renewals)
        elif isinstance(message, Stop):
            self.on_stop(message.reason, message.hurry)
        elif isinstance(message, Feed):
            self._by_grip[message.job.id, message.job.fence] = message.cell
            self.on_feed(message.job)

    def end_with_parent(self, after_s: float, end: Callable[[], None]) -> None:
        """Makes sure, from a thread, that a child whose loop is blocked does not outlive its parent by more than this time."""

        def watch() -> None:
            poll = select.poll()
            poll.register(self._fd, 0)  # only the end of the other side
            poll.poll()
            threading.Event().wait(after_s)
            end()

        threading.Thread(target=watch, name="mulligan-parent", daemon=True).start()

    # --- what the worker tells -----------------------------------------------------------------------------------------

    def sort_by(self, policies: Policies) -> None:
        """The policies that tell which jobs must run alone."""
        if not self.solo:
            self.must_run_alone = alone_rule(policies)

    def hello(self, name: str) -> None:
        """The worker claims under this name from now on, or waits for jobs to be brought; its supervisor renews for it."""
        self._link.send(Hello(name))

    def reporter(self, lease_s: float, describe: Callable[[], WorkerInfo]) -> Reporter:
        """What the worker has in the place of a keeper."""
        return Reporter(self, lease_s, describe)

    def feeder(self, executor: Executor, time: StoreTime) -> Feeder | None:
        """What a worker that runs jobs alone has in the place of a fetcher; None for any other."""
        if not self.solo:
            return None
        feeder = Feeder(executor, time)
        self.on_feed = feeder.feed
        return feeder

    async def kept(self) -> None:
        """Returns when the supervisor renews leases. While it does not, being paused or without a store, more jobs would be lost too."""
        while 0 < self.cells.fresh_until_us <= monotonic_us():  # noqa: ASYNC110 - another process writes it, and no event can tell
            await asyncio.sleep(KEPT_LOOK_S)

    async def claiming(self, claim_id: str) -> None:
        """Told before a claim is made."""
        self.cells.set_claiming(True)
        self._link.send(Claiming(claim_id))
        await self._link.sent()

    def claimed(self) -> None:
        """The claim is answered, and what it has brought is told."""
        self.cells.set_claiming(False)

    async def take(self, claim_id: str, jobs: Sequence[Job]) -> list[Job]:
        """Tells what a claim has brought; the jobs that are to be run here, once the supervisor can know of them."""
        alone = [job for job in jobs if self.must_run_alone(job)]
        is_taken = bool(alone) and self.cells.alone_until_us > monotonic_us()
        own = [job for job in jobs if job not in alone] if is_taken else list(jobs)
        while len(own) > len(self._free):  # as many as are held at most have a cell, so some will soon be free
            self._room = asyncio.get_running_loop().create_future()
            await self._room
        passed_on = [Holding(-1, job.id, job.fence, job.timeout_us) for job in alone] if is_taken else []
        self._tell_dropped()
        self._link.send(Held(claim_id, self._assign(own), passed_on, wants_alone=bool(alone)))
        await self._link.sent()
        return own

    def _assign(self, jobs: Sequence[Job]) -> list[Holding]:
        """Gives each of these jobs a cell."""
        holdings = []
        for job in jobs:
            cell = self._free.pop()
            self.cells.clear(cell)
            self._by_grip[job.id, job.fence] = cell
            holdings.append(Holding(cell, job.id, job.fence, job.timeout_us))
        return holdings

    def new_run(self, job: Job, held_until_s: float) -> Run:
        """The run of a job that was taken."""
        run = WatchedRun(job, held_until_s, self.cells, self._by_grip[job.id, job.fence])
        if self.must_run_alone(job):
            run.stop = "alone later" if self.cells.alone_until_us == NO_ROOM else "alone soon"
        return run

    def drop(self, grip: Grip) -> None:
        """The job is settled or lost. Told with the others of its batch."""
        cell = self._by_grip.pop(grip, None)
        if cell is None:
            return
        if not self._dropped:
            asyncio.get_running_loop().call_soon(self._tell_dropped)
        self._dropped.append(cell)

    def _tell_dropped(self) -> None:
        cells, self._dropped = self._dropped, []
        if not cells:
            return
        self._link.send(Dropped(cells))
        self._free += cells
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def report(self, info: WorkerInfo) -> None:
        """What this child says of itself. Left out while the parent is behind: the next one says as much."""
        if not self._link.is_behind:
            self._link.send(Report(info))

    def leaving(self) -> None:
        """The last word of a child that ends by its own will."""
        self._tell_dropped()
        self._link.send(Leaving())

    def close(self) -> None:
        """Lets go of the link and of the memory."""
        self._link.close()
        self.cells.close()


class Reporter:
    """What a child has in the place of a keeper: its supervisor renews, and writes the child's report with it."""

    def __init__(self, link: ChildLink, lease_s: float, describe: Callable[[], WorkerInfo]) -> None:
        self._link = link
        self._pause_s = min(lease_s / RENEWALS_PER_LEASE, BEAT_MAX_S)
        self._describe = describe

    async def run(self) -> None:
        """The loop; ends by cancellation."""
        while True:
            self._link.report(self._describe())
            await asyncio.sleep(self._pause_s)
