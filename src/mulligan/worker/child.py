"""A child process as its supervisor sees it: started, heard over the link, and known by what it holds, also when it is dead."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Literal

from mulligan.core.change import Grip
from mulligan.core.contract import Renewal, WorkerInfo
from mulligan.core.job import Job
from mulligan.worker.cells import Cells, monotonic_us, new_memory
from mulligan.worker.link import Answers, Claiming, Dropped, Feed, Held, Hello, Holding, Leaving, Link, Message, Report, Stop
from mulligan.worker.run import SURE_OF_LEASE

log = logging.getLogger("mulligan.supervisor")
POLL_S = 0.05  # between two looks for the end of a child, where the system cannot tell of it
Wish = Literal["cancel", "lost"]


class HeldJob:
    """A job in the hands of a child."""

    __slots__ = ("cell", "fence", "job_id", "timeout_us", "told_us", "wish")

    def __init__(self, holding: Holding) -> None:
        self.cell = holding.cell
        self.job_id = holding.job_id
        self.fence = holding.fence
        self.timeout_us = holding.timeout_us
        self.wish: Wish | None = None  # why it was told to stop by us
        self.told_us = 0  # and when, on the clock of the cells


class Child:
    """One process. Its fields are what it has told; `ended` is done with its exit status once it is dead and its group with it."""

    def __init__(self, place: int, command: Sequence[str], cells: int, on_alone: Callable[[Child, list[Holding]], None]) -> None:
        loop = asyncio.get_running_loop()
        own, theirs = socket.socketpair()
        memory = new_memory(cells)
        try:
            arguments = [*command, "--link-fd", str(theirs.fileno()), "--cells-fd", str(memory)]
            self._process = subprocess.Popen(arguments, pass_fds=[theirs.fileno(), memory], process_group=0, stdin=subprocess.DEVNULL)
            self.cells = Cells(memory)
        except BaseException:
            own.close()
            raise
        finally:
            theirs.close()
            os.close(memory)
        self._loop = loop
        self.place = place
        self.pid = self._process.pid
        self.name = ""  # known from its hello on
        self.info: WorkerInfo | None = None
        self.held: dict[int, HeldJob] = {}  # by cell
        self.claim_id: str | None = None  # a claim whose jobs have not been told
        self.claiming_since_s = 0.0
        self.finished = 0  # jobs it has let go
        self.started_s = self.heard_s = loop.time()  # when it was started, and heard of last
        self.is_leaving = False  # it ends by its own will
        self.culprits: frozenset[tuple[str, int]] = frozenset()  # the grips for whose sake it was killed
        self.was_killed = False  # by us
        self.stop_by_s: float | None = None  # told to stop: when a handler that still runs is not waited for any longer
        self._last_stop: Stop | None = None
        self.worn = asyncio.Event()  # it should be replaced
        self.worn_why = ""
        self.is_ready: asyncio.Future[None] = loop.create_future()
        self.reported = asyncio.Event()
        self.idle = asyncio.Event()  # it holds nothing
        self.ended: asyncio.Future[int] = loop.create_future()
        self._on_alone = on_alone
        self._link = Link(own, self._on_message, lambda: None)
        self._link.listen()
        self._watch_end()

    # --- its end -------------------------------------------------------------------------------------------------------

    def _watch_end(self) -> None:
        try:
            fd = os.pidfd_open(self.pid)
        except (AttributeError, OSError):  # not Linux, an old one, a container that forbids it, or no descriptor left
            self._poll_end()
            return

        def ended() -> None:
            self._loop.remove_reader(fd)
            os.close(fd)
            self._on_end()

        self._loop.add_reader(fd, ended)

    def _poll_end(self) -> None:
        try:
            is_alive = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        except (AttributeError, ChildProcessError):  # not every system can look without taking it
            is_alive = self._process.poll() is None
        if is_alive:
            self._loop.call_later(POLL_S, self._poll_end)
        else:
            self._on_end()

    def _on_end(self) -> None:
        self.kill_group()  # before it is waited for: until then nobody else can have its number
        code = self._process.wait()
        self._link.drain()
        self._link.close()
        if not self.is_ready.done():
            self.is_ready.cancel()
        self.idle.set()
        if not self.ended.done():
            self.ended.set_result(code)

    def close(self) -> None:
        """Lets go of the memory it shared."""
        self.cells.close()

    # --- what it is told -----------------------------------------------------------------------------------------------

    def kill(self, culprits: Sequence[HeldJob] = ()) -> None:
        """kill -9, of the whole group; `culprits` are the jobs that left no other way."""
        if not self.was_killed:
            self.was_killed = True
            self.culprits = frozenset((job.job_id, job.fence) for job in culprits)
        self.kill_group()

    def kill_group(self) -> None:
        """Ends it with everything its handlers have started and not moved elsewhere."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if not self.ended.done():
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def ask_to_stop(self, reason: str, stop_by_s: float, *, hurry: bool = False) -> None:
        """It claims no more and ends when it has finished, or at once. One that does not listen yet is ended by a signal, without a word.

        Not by a signal otherwise: those who end a whole service send one to every process, and two of them would mean haste.
        """
        self.stop_by_s = min(self.stop_by_s or stop_by_s, stop_by_s)
        self._last_stop = Stop(reason, hurry)
        if self.name:
            self._link.send(self._last_stop)
        else:
            self._signal(signal.SIGTERM)

    def feed(self, cell: int, job: Job) -> None:
        """Gives it a job to run alone."""
        self.idle.clear()
        self.held[cell] = HeldJob(Holding(cell, job.id, job.fence, job.timeout_us))
        self.cells.clear(cell)
        self.cells.keep(cell, _sure_until(monotonic_us() + (job.lease_expires_at_us or 0) - job.read_at_us))
        self._link.send(Feed(cell, job))

    def tell(self, renewals: Sequence[Renewal]) -> None:
        """Passes on what the store has said. While the child is far behind it is not told: the store will say it again."""
        if self._link.is_behind:
            return
        self._link.send(Answers(list(renewals)))
        told = {(renewal.job_id, renewal.fence): renewal for renewal in renewals}
        for job in self.held.values():
            renewal = told.get((job.job_id, job.fence))
            if renewal is not None and job.wish is None:
                job.wish, job.told_us = "cancel" if renewal.held else "lost", monotonic_us()

    def renewed(self, renewals: Sequence[Renewal], until_us: int) -> None:
        """What was renewed holds until then, on the clock of the cells. Only that: what is not among it may be another's by now."""
        self.hear()  # a cell may have another job since they were sent
        sure_until_us = _sure_until(until_us)
        held = {(renewal.job_id, renewal.fence) for renewal in renewals if renewal.held}
        for job in self.held.values():
            if (job.job_id, job.fence) in held:
                self.cells.keep(job.cell, sure_until_us)
        self.cells.set_fresh(sure_until_us)

    # --- what it tells -------------------------------------------------------------------------------------------------

    def hear(self) -> None:
        """Takes in what it has said so far, so that nothing is judged by what was true earlier."""
        self._link.drain()

    def _on_message(self, message: Message) -> None:
        self.heard_s = self._loop.time()
        if isinstance(message, Held):
            if self.claim_id == message.claim_id:
                self.claim_id = None
            for holding in message.jobs:
                self.held[holding.cell] = HeldJob(holding)
            if message.alone or message.wants_alone:
                self._on_alone(self, message.alone)
        elif isinstance(message, Dropped):
            for cell in message.cells:
                self.held.pop(cell, None)
            self.finished += len(message.cells)
            if not self.held:
                self.idle.set()
        elif isinstance(message, Claiming):
            self.claim_id, self.claiming_since_s = message.claim_id, self._loop.time()
        elif isinstance(message, Report):
            self.info = message.info
            self.reported.set()
        elif isinstance(message, Hello):
            self.name = message.name
            if self._last_stop is not None:  # it may have heard the signal and not how urgent it is
                self._link.send(self._last_stop)
            if not self.is_ready.done():
                self.is_ready.set_result(None)
        elif isinstance(message, Leaving):
            self.is_leaving = True

    # --- what follows from it --------------------------------------------------------------------------------------------

    @property
    def is_up(self) -> bool:
        """It works: started, and not told to stop."""
        return bool(self.name) and not self.ended.done() and self.stop_by_s is None

    def grips(self) -> list[Grip]:
        """What to renew for it."""
        return [Grip(job.job_id, job.fence) for job in self.held.values()]

    def claim_since(self, before_s: float) -> str | None:
        """The claim that was made before this time and whose answer it has not read yet, if there is one: its loop is blocked, say."""
        return self.claim_id if self.cells.is_claiming and self.claiming_since_s <= before_s else None

    def running(self) -> list[HeldJob]:
        """The jobs whose handlers have begun and not ended."""
        cells = self.cells
        return [job for job in self.held.values() if cells[job.cell] > 0]

    def overdue(self, now_us: int, after_us: int) -> list[HeldJob]:
        """The jobs whose handlers still run although they were to stop so long ago: out of time, cancelled, or no longer theirs."""
        late = []
        for job in self.held.values():
            since_us = self.cells[job.cell]
            if since_us <= 0:
                continue
            ends = [since_us + job.timeout_us] if job.timeout_us is not None else []
            if job.wish is not None:
                ends.append(job.told_us)
            if ends and min(ends) + after_us <= now_us:
                late.append(job)
        return late


def _sure_until(until_us: int) -> int:
    """How long to count on a lease that ends then."""
    now_us = monotonic_us()
    return now_us + round((until_us - now_us) * SURE_OF_LEASE)


def how_it_ended(code: int) -> str:
    """An exit status in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"signal {-code}"


def resident_mb(pid: int) -> float | None:
    """How much memory a process has in use; None where that cannot be known."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1_048_576
    except (OSError, IndexError, ValueError):
        return None


def reap_strangers(own: Collection[int]) -> None:
    """Lets go of dead processes that are not ours: to the first process of a container come the orphans of all others."""
    while True:
        try:
            dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if dead is None or dead.si_pid in own:  # one of ours is looked after elsewhere, soon; then the others show
            return
        os.waitpid(dead.si_pid, os.WNOHANG)
