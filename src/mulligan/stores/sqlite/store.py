"""The SQLite store: one file, any number of processes, nothing to install.

new → open → closed, and open again. While it is open, a writing and a reading thread own one connection each (writer.py, reader.py);
each method hands one piece of work to one of them. The work itself is in the modules named after it.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from mulligan.core.change import Change, Grip, Verdict, check_all_writable
from mulligan.core.clock import Clock, SystemClock
from mulligan.core.contract import (
    Ask,
    CancelAnswer,
    Claimed,
    Found,
    Inserted,
    Note,
    Promise,
    Pulse,
    Query,
    QueueState,
    Renewal,
    Stats,
    Width,
    WorkerInfo,
)
from mulligan.core.errors import BadSetting, IllegalMove
from mulligan.core.events import Event
from mulligan.core.job import Job, NewJob, Status
from mulligan.core.limits import Level
from mulligan.core.receipt import Receipt, check_receipt
from mulligan.core.ring import Stretches
from mulligan.core.schedule import Schedule, Tick
from mulligan.stores.gather import GATHER_MAX, Gatherer
from mulligan.stores.sqlite import claim, eventlog, find, insert, leases, limits, notes, receipts, restore, rows, settings, settle, stats
from mulligan.stores.sqlite.at_once import ready
from mulligan.stores.sqlite.connection import DURABILITIES, Durability
from mulligan.stores.sqlite.faults import DRIVER_ERRORS, translated
from mulligan.stores.sqlite.hop import Transaction
from mulligan.stores.sqlite.promise import promise_of
from mulligan.stores.sqlite.session import Session
from mulligan.stores.sqlite.taking import Taken
from mulligan.stores.sqlite.wake import SocketListener

T = TypeVar("T")
BUSY_TIMEOUT_MAX_S = 600


class SQLiteStore:
    """Jobs in one SQLite file. Usable from any event loop and any thread of the process that opened it."""

    width = Width(ahead=2_000, batch=1_000)  # a commit of a thousand outcomes takes hardly longer than one of five hundred

    def __init__(
        self, path: str | Path, *, clock: Clock | None = None, durability: Durability = "full", busy_timeout_s: float = 5.0
    ) -> None:
        if durability not in DURABILITIES:
            raise BadSetting(f"durability must be one of {', '.join(DURABILITIES)}, not {durability!r}")
        if not 0 <= busy_timeout_s <= BUSY_TIMEOUT_MAX_S:
            raise BadSetting(f"busy_timeout_s must be between 0 and {BUSY_TIMEOUT_MAX_S} seconds, not {busy_timeout_s!r}")
        if str(path) in ("", ":memory:") or "\0" in str(path):
            raise BadSetting(f"{str(path)!r} names no file; give a path, or use memory:// for a store that lives and dies with the process")
        self.url = "sqlite:///" + quote(str(path))
        self.path = Path(os.path.realpath(path))
        self._clock = clock or SystemClock()
        self._durability: Durability = durability
        self._busy_timeout_s = busy_timeout_s
        self._door = threading.Lock()
        self._session: Session | None = None
        self._left_behind: list[Session] = []  # of the process this one was forked from; kept so that nothing closes them here
        self._gatherers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Gatherer] = weakref.WeakKeyDictionary()
        self._stretches = Stretches()
        self._claims_empty = False  # whether the last claim came back with nothing: the next one then looks before it writes

    # -- Life ---------------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Makes the store usable: creates or migrates the file if need be. Opening an open store changes nothing."""
        with self._door:
            session = self._session
            if session is not None and not session.is_of_this_process:
                self._left_behind.append(session)
                session = None
            if session is not None:
                session.writer.check_may_wait()
            if session is None:
                session = self._session = Session(self.path, self._clock, self._durability, self._busy_timeout_s)
        try:
            await session.start()
        except BaseException:
            with self._door:
                if self._session is session:
                    self._session = None
            await session.stop()
            raise

    async def close(self) -> None:
        """Ends all use, after what is under way. Closing a closed store changes nothing."""
        with self._door:
            if self._session is not None:
                self._session.writer.check_may_wait()
            session, self._session = self._session, None
            if session is not None and not session.is_of_this_process:
                self._left_behind.append(session)
                return
        if session is not None:
            await session.stop()

    async def now_us(self) -> int:
        """The store's time."""
        self._opened()
        return self._clock.now_us()

    def _opened(self) -> Session:
        session = self._session
        if session is None:
            raise IllegalMove("this store is not open: await store.open() first; a closed store must be opened again")
        session.check_process()
        return session

    async def _write(self, work: Callable[[Transaction], T]) -> T:
        return await self._opened().writer.run(work)

    async def _read(self, work: Callable[[Transaction], T]) -> T:
        return await self._opened().reader.run(work)

    # -- Jobs: insert, claim, renew, settle ---------------------------------------------------------------------------

    async def insert(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        """Stores new jobs; see Inserted for what a known id or a taken unique key answers."""
        self._opened()
        return await (self._insert_now(jobs) if len(jobs) > GATHER_MAX else self._gatherer().insert(jobs))

    async def _insert_now(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        return await self._write(partial(insert.insert, jobs=jobs))

    def insert_now(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        """The same for a thread that runs no event loop, which writes by itself while nobody else does; see InsertsNow."""
        return self._opened().writer.run_now(partial(insert.insert, jobs=jobs))

    def waited_for(self) -> AbstractContextManager[None]:
        """To be entered by a thread while it waits for a loop that uses this store; see InsertsNow."""
        session = self._session
        return nullcontext() if session is None else session.writer.waited_for()

    def _gatherer(self) -> Gatherer:
        loop = asyncio.get_running_loop()
        with self._door:
            gatherer = self._gatherers.get(loop)
            if gatherer is None:
                gatherer = self._gatherers[loop] = Gatherer(self._insert_now)
            return gatherer

    def insert_in(self, connection: sqlite3.Connection, jobs: Sequence[NewJob]) -> list[Inserted]:
        """Stores new jobs in the caller's own open transaction on the same file: they exist if and when the caller commits.

        Called in the caller's thread. The caller's connection knows nothing of our file lock: keep the transaction short. Call announce()
        after the commit; without it, a sleeping worker finds the jobs at its next poll.
        """
        try:
            return insert.insert_in(connection, jobs, self._clock.now_us())
        except DRIVER_ERRORS as problem:
            raise translated(problem, str(self.path)) from problem

    async def claim(self, claim_id: str, owner: str, asks: Sequence[Ask], total: int, lease_us: int) -> Claimed:
        """Takes due jobs under a lease, or returns what an earlier claim of the same id still holds."""
        if total <= 0 or not asks:
            return Claimed(jobs=[], now_us=await self.now_us(), next_due_us=None)
        taken: Taken | None = None
        if self._claims_empty:
            taken = await self._read(partial(claim.probe, stretches=self._stretches, claim_id=claim_id, asks=asks, total=total))
        if taken is None:
            work = partial(claim.claim, claim_id=claim_id, owner=owner, asks=asks, total=total, lease_us=lease_us)
            taken = await self._write(partial(work, stretches=self._stretches))
        self._claims_empty = taken.is_empty
        jobs = rows.decode_text(taken.text)
        if jobs is None:
            jobs = await self._write(partial(rows.salvage, chosen=taken.chosen))
        return Claimed(
            jobs=jobs,
            now_us=taken.now_us,
            next_due_us=taken.next_due_us,
            held_back=taken.held_back,
            turns=taken.turns,
            levels=dict(taken.levels),
        )

    async def renew(self, grips: Sequence[Grip], lease_us: int, worker: WorkerInfo | None = None) -> list[Renewal]:
        """Lengthens the leases that are still held, and notes that the worker lives."""
        return await self._write(partial(leases.renew, grips=grips, lease_us=lease_us, worker=worker))

    async def settle(self, changes: Sequence[Change]) -> list[Verdict]:
        """Applies each change whose guard holds, in order; the others are refused, one by one."""
        check_all_writable(changes)
        try:
            at_once = ready(changes)
        except DRIVER_ERRORS as problem:  # a text that cannot be encoded, or a number that is too large
            raise translated(problem, str(self.path)) from problem
        at_us, verdicts = await self._write(partial(settle.settle, changes=changes, at_once=at_once))
        return at_once.verdicts(at_us) if verdicts is None and at_once is not None else verdicts or []

    # -- Jobs: sweeping, cancelling, reading, removing ----------------------------------------------------------------

    async def overdue(self, limit: int) -> list[Job]:
        """Processing jobs whose lease has ended, the oldest end first. Takes nothing over; quarantines what cannot be decoded."""
        jobs, chosen = await self._read(partial(leases.overdue, limit=limit))
        return await self._write(partial(rows.salvage, chosen=chosen)) if jobs is None else jobs

    async def request_cancel(self, ids: Sequence[str]) -> list[CancelAnswer]:
        """Cancels pending jobs at once, and asks the holders of processing ones to stop."""
        return await self._write(partial(leases.request_cancel, ids=ids))

    async def get(self, ids: Sequence[str]) -> list[Job | None]:
        """The jobs with their histories, in the order of the ids; None where there is no such job."""
        return await self._read(partial(find.get, ids=ids))

    async def restore(self, jobs: Sequence[Job], receipts: Mapping[str, Sequence[Receipt]] = {}) -> list[bool]:
        """Writes jobs of another store as they were there; False for an id that is there already."""
        return await self._write(partial(restore.restore, jobs=jobs, receipts=receipts))

    async def find(self, query: Query, limit: int, after: str | None = None) -> Found:
        """One page of the jobs that match, newest first."""
        find.check_limit(limit)
        return await self._read(partial(find.find, query=query, limit=limit, after=after))

    async def stats(self) -> Stats:
        """Every queue that has jobs or a stored setting, counted."""
        return await self._read(stats.stats)

    async def prune(self, status: Status, older_than_us: int, limit: int) -> int:
        """Removes jobs that came to rest long enough ago, oldest first; returns how many."""
        find.check_prunable(status)
        return await self._write(partial(find.prune, status=status, older_than_us=older_than_us, limit=limit))

    async def put_receipt(self, grip: Grip, name: str, value_json: str | None) -> Receipt | None:
        """Stores the receipt of a step, or finds the one that is there; None if the grip does not hold."""
        check_receipt(name, value_json)
        return await self._write(partial(receipts.put_receipt, grip=grip, name=name, value_json=value_json))

    async def receipts(self, ids: Sequence[str]) -> list[list[Receipt]]:
        """The receipts of each job, in the order in which they were stored."""
        return await self._read(partial(receipts.receipts, ids=ids))

    # -- Queues, notes, schedules, workers -----------------------------------------------------------------------------------

    async def set_queue(self, queue: str, *, paused: bool, reason: str = "", by: str = "") -> QueueState:
        """Stores a queue's settings."""
        return await self._write(partial(settings.set_queue, queue=queue, paused=paused, reason=reason, by=by))

    async def queue_states(self) -> list[QueueState]:
        """All stored queue settings, by name."""
        return await self._read(settings.queue_states)

    async def notes(self, prefix: str) -> list[Note]:
        """The notes whose key begins so, by key."""
        return await self._read(partial(notes.notes, prefix=prefix))

    async def put_note(self, key: str, body: str, version: int) -> Note | None:
        """Writes a note over the version given; None if it has another one."""
        return await self._write(partial(notes.put_note, key=key, body=body, version=version))

    async def levels(self) -> dict[str, Level]:
        """What is stored of every bucket."""
        return await self._read(limits.levels)

    async def pulse(self, queues: Sequence[str]) -> list[Pulse]:
        """How full queues are."""
        return await self._read(partial(stats.pulse, queues=queues))

    async def put_schedule(self, schedule: Schedule) -> Schedule:
        """Stores a schedule; one of the same name and interval goes on from where it stands."""
        return await self._write(partial(settings.put_schedule, schedule=schedule))

    async def set_schedule_paused(self, name: str, paused: bool) -> bool:
        """Pauses or resumes a schedule; False if there is none of that name."""
        return await self._write(partial(settings.set_schedule_paused, name=name, paused=paused))

    async def remove_schedule(self, name: str) -> bool:
        """Removes a schedule, not the jobs it made; False if there is none of that name."""
        return await self._write(partial(settings.remove_schedule, name=name))

    async def schedules(self) -> list[Schedule]:
        """All schedules, by name."""
        return await self._read(settings.schedules)

    async def fire(self, ticks: Sequence[Tick]) -> list[bool]:
        """Moves each schedule that still stands where the tick expects it, and inserts the tick's job in the same transaction."""
        return await self._write(partial(settings.fire, ticks=ticks))

    async def workers(self) -> list[WorkerInfo]:
        """The workers that reported themselves within the last hour, by id."""
        return await self._read(leases.workers)

    # -- Events, wake-ups, the file itself ----------------------------------------------------------------------------

    async def record_events(self, events: Sequence[Event]) -> None:
        """Appends events to the log."""
        await self._write(partial(eventlog.append_events, events=events))

    async def read_events(self, after_seq: int, limit: int) -> list[Event]:
        """The events after a place in the log, oldest first."""
        return await self._read(partial(eventlog.read_events, after_seq=after_seq, limit=limit))

    async def near(self) -> None:
        """Nothing: whoever writes a file has to wait for it, and that is what the thread is for."""

    def listen(self) -> SocketListener:
        """A new ear for wake-ups; close it when done."""
        return self._opened().wakeups.listen()

    def announce(self) -> None:
        """Hints to every listener, of this process and of others, that there may be work."""
        session = self._session
        if session is not None and session.is_of_this_process and session.is_started:
            session.wakeups.announce()

    async def describe(self) -> dict[str, object]:
        """What there is to know about the file and the library, for `mulligan doctor`."""
        session = self._opened()
        return await self._read(session.describe)

    async def promise(self) -> Promise:
        """What the file can keep with the settings SQLite really runs under."""
        return promise_of(await self.describe())
