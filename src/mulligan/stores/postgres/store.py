"""The PostgreSQL store: one schema in a database, any number of processes and machines.

The life of the store, its deadlines and its hints are those of every network store (network/store.py); each method here hands one piece
of work to the home loop. The work itself is in the modules named after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from mulligan.core.change import Change, Grip, Verdict, check_all_writable
from mulligan.core.clock import Clock
from mulligan.core.contract import (
    Ask,
    CancelAnswer,
    Claimed,
    Found,
    Inserted,
    Near,
    Note,
    Promise,
    Pulse,
    Query,
    QueueState,
    Renewal,
    Stats,
    WorkerInfo,
)
from mulligan.core.errors import IllegalMove, MulliganError
from mulligan.core.events import Event
from mulligan.core.job import Job, NewJob, Status
from mulligan.core.limits import Level
from mulligan.core.receipt import Receipt, check_receipt
from mulligan.core.ring import Stretches
from mulligan.core.schedule import Schedule, Tick
from mulligan.stores.network.inserts import Direct
from mulligan.stores.network.store import NetworkStore
from mulligan.stores.postgres import (
    careful,
    claim,
    eventlog,
    find,
    insert,
    joining,
    leases,
    notes,
    promise,
    receipts,
    restore,
    settings,
    settle,
    stats,
)
from mulligan.stores.postgres.claim import Wish
from mulligan.stores.postgres.database import Database, Target
from mulligan.stores.postgres.faults import translated
from mulligan.stores.postgres.floors import Floors
from mulligan.stores.postgres.migrations import migrate
from mulligan.stores.postgres.near import CONNECTIONS, PostgresNear
from mulligan.stores.postgres.wake import Ear, spread

SettleWay = Callable[[Database, Sequence[Change]], Coroutine[Any, Any, list[Verdict]]]
_NOW = "SELECT {s}.now_us($1)"


class PostgresStore(NetworkStore):
    """Jobs in one schema of a PostgreSQL database. Usable from any event loop and any thread of the process that opened it."""

    def __init__(self, url: str, target: Target, *, clock: Clock | None = None) -> None:
        super().__init__(url, target.where, clock=clock, timeout_s=target.timeout_s)
        self._target = target
        self._database: Database | None = None
        self._ear: Ear | None = None
        self._floors = Floors()
        self._stretches = Stretches()
        self._grouped: set[str] = set()  # queues that are known to have jobs with groups

    # -- Life ---------------------------------------------------------------------------------------------------------

    async def _connect(self) -> None:
        if self._database is not None:
            return
        database = self._database = Database(self._target, self._clock)
        self._floors = Floors()
        self._grouped.clear()
        await database.look()
        await migrate(database)
        self._ear = Ear(database)
        await self._ear.begin()

    async def _disconnect(self) -> None:
        database, self._database = self._database, None
        ear, self._ear = self._ear, None
        if ear is not None:
            ear.end()
        if database is not None:
            await database.pool.close()

    def _abandon(self) -> list[object]:
        database, self._database = self._database, None
        ear, self._ear = self._ear, None
        left = [] if ear is None else ear.abandon()
        return left if database is None else [*left, database, *database.pool.abandon()]

    def _translated(self, problem: Exception) -> MulliganError:
        return translated(problem, self._where)

    async def _subscribe(self, heard: Callable[[], None]) -> None:
        if self._ear is not None:
            await self._ear.hear(heard)

    async def _spread(self) -> None:
        async with asyncio.timeout(self._timeout_s):
            await spread(self._db)

    @property
    def _db(self) -> Database:
        if self._database is None:
            raise IllegalMove("this store is not open: await store.open() first; a closed store must be opened again")
        return self._database

    async def now_us(self) -> int:
        """The store's time."""
        row = await self._call(lambda: self._db.row(_NOW, self._now_us()))
        return int(row[0])

    # -- Jobs: insert, claim, renew, settle ---------------------------------------------------------------------------

    async def _insert(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        return await insert.insert(self._db, jobs)

    def _direct(self) -> Direct | None:
        if self._clock is not None or self._db.pooled:
            return None
        database = Database(self._target._replace(connections=1), None)
        return Direct(
            insert=lambda jobs: self._insert_here(lambda: insert.insert(database, jobs)),
            close=database.pool.close,
            takes=lambda jobs: not insert.is_repetitive(jobs),
        )

    def insert_in(self, connection: Any, jobs: Sequence[NewJob]) -> Any:
        """Stores new jobs in the caller's own open transaction on the same database: they exist if and when the caller commits.

        The connection is one of psycopg or asyncpg, or a connection or session of SQLAlchemy; with an asynchronous one the answer is
        to be awaited. The store need not be open, but its schema must exist. Call announce() after the commit; without it, a sleeping
        worker finds the jobs at its next poll.
        """
        if joining.is_async(connection):
            return self.insert_in_async(connection, jobs)
        return joining.insert_in(connection, self._target, jobs, self._now_us())

    async def insert_in_async(self, connection: Any, jobs: Sequence[NewJob]) -> list[Inserted]:
        """The same for asynchronous connections only."""
        return await joining.insert_in_async(connection, self._target, jobs, self._now_us())

    async def claim(self, claim_id: str, owner: str, asks: Sequence[Ask], total: int, lease_us: int) -> Claimed:
        """Takes due jobs under a lease, or returns what an earlier claim of the same id still holds."""
        if total <= 0 or not asks:
            return Claimed(jobs=[], now_us=await self.now_us(), next_due_us=None)
        wish = Wish(claim_id, owner, asks, total, lease_us)
        return await self._call(lambda: self._claim(wish))

    async def _claim(self, wish: Wish) -> Claimed:
        if not careful.is_careful(wish.asks, self._grouped):
            claimed = await claim.claim(self._db, self._floors, wish)
            if claimed is not None:
                return claimed
        return await careful.claim(self._db, self._grouped, self._stretches, wish)

    async def near(self) -> Near | None:
        """Claims and settles over connections on the running loop. None where a call is more than one statement (behind a pooler), and on
        a test's clock, which must not move while the server works."""
        if self._clock is not None or self._db.pooled:
            return None
        database = Database(self._target._replace(connections=CONNECTIONS), None)
        in_steps = partial(self._settle, settle.settle_in_steps)
        return PostgresNear(self, self._call_here, in_steps, self.announce, database, self._grouped)

    async def renew(self, grips: Sequence[Grip], lease_us: int, worker: WorkerInfo | None = None) -> list[Renewal]:
        """Lengthens the leases that are still held, and notes that the worker lives."""
        return await self._call(lambda: leases.renew(self._db, grips, lease_us, worker))

    async def settle(self, changes: Sequence[Change]) -> list[Verdict]:
        """Applies each change whose guard holds, in order; the others are refused, one by one."""
        check_all_writable(changes)
        return await self._settle(settle.settle, changes)

    async def _settle(self, way: SettleWay, changes: Sequence[Change]) -> list[Verdict]:
        verdicts = await self._call(lambda: way(self._db, changes))
        if any(verdict.applied and verdict.status == "pending" for verdict in verdicts):
            self.announce()
        return verdicts

    # -- Jobs: sweeping, cancelling, reading, removing ----------------------------------------------------------------

    async def overdue(self, limit: int) -> list[Job]:
        """Processing jobs whose lease has ended, the oldest end first. Takes nothing over; quarantines what cannot be decoded."""
        return await self._call(lambda: leases.overdue(self._db, limit))

    async def request_cancel(self, ids: Sequence[str]) -> list[CancelAnswer]:
        """Cancels pending jobs at once, and asks the holders of processing ones to stop."""
        return await self._call(lambda: leases.request_cancel(self._db, ids))

    async def get(self, ids: Sequence[str]) -> list[Job | None]:
        """The jobs with their histories, in the order of the ids; None where there is no such job."""
        return await self._call(lambda: find.get(self._db, ids))

    async def restore(self, jobs: Sequence[Job], receipts: Mapping[str, Sequence[Receipt]] = {}) -> list[bool]:
        """Writes jobs of another store as they were there; False for an id that is there already."""
        answers = await self._call(lambda: restore.restore(self._db, jobs, receipts))
        self.announce()
        return answers

    async def find(self, query: Query, limit: int, after: str | None = None) -> Found:
        """One page of the jobs that match, newest first."""
        find.check_limit(limit)
        return await self._call(lambda: find.find(self._db, query, limit, after))

    async def stats(self) -> Stats:
        """Every queue that has jobs or a stored setting, counted."""
        return await self._call(lambda: stats.stats(self._db))

    async def prune(self, status: Status, older_than_us: int, limit: int) -> int:
        """Removes jobs that came to rest long enough ago, oldest first; returns how many."""
        find.check_prunable(status)
        return await self._call(lambda: find.prune(self._db, status, older_than_us, limit))

    async def put_receipt(self, grip: Grip, name: str, value_json: str | None) -> Receipt | None:
        """Stores the receipt of a step, or finds the one that is there; None if the grip does not hold."""
        check_receipt(name, value_json)
        return await self._call(lambda: receipts.put_receipt(self._db, grip, name, value_json))

    async def receipts(self, ids: Sequence[str]) -> list[list[Receipt]]:
        """The receipts of each job, in the order in which they were stored."""
        return await self._call(lambda: receipts.receipts(self._db, ids))

    # -- Queues, schedules, workers -----------------------------------------------------------------------------------

    async def set_queue(self, queue: str, *, paused: bool, reason: str = "", by: str = "") -> QueueState:
        """Stores a queue's settings."""
        state, resumed = await self._call(lambda: settings.set_queue(self._db, queue, paused, reason, by))
        if resumed:
            self.announce()
        return state

    async def queue_states(self) -> list[QueueState]:
        """All stored queue settings, by name."""
        return await self._call(lambda: settings.queue_states(self._db))

    async def notes(self, prefix: str) -> list[Note]:
        """The notes whose key begins so, by key."""
        return await self._call(lambda: notes.notes(self._db, prefix))

    async def put_note(self, key: str, body: str, version: int) -> Note | None:
        """Writes a note over the version given; None if it has another one."""
        return await self._call(lambda: notes.put_note(self._db, key, body, version))

    async def levels(self) -> dict[str, Level]:
        """What is stored of every bucket."""
        return await self._call(lambda: careful.levels(self._db))

    async def pulse(self, queues: Sequence[str]) -> list[Pulse]:
        """How many jobs of each queue are due, up to a bound, and since when the oldest is."""
        return await self._call(lambda: stats.pulse(self._db, queues))

    async def put_schedule(self, schedule: Schedule) -> Schedule:
        """Stores a schedule; one of the same name and interval goes on from where it stands."""
        return await self._call(lambda: settings.put_schedule(self._db, schedule))

    async def set_schedule_paused(self, name: str, paused: bool) -> bool:
        """Pauses or resumes a schedule; False if there is none of that name."""
        return await self._call(lambda: settings.set_schedule_paused(self._db, name, paused))

    async def remove_schedule(self, name: str) -> bool:
        """Removes a schedule, not the jobs it made; False if there is none of that name."""
        return await self._call(lambda: settings.remove_schedule(self._db, name), repeat=False)

    async def schedules(self) -> list[Schedule]:
        """All schedules, by name."""
        return await self._call(lambda: settings.schedules(self._db))

    async def fire(self, ticks: Sequence[Tick]) -> list[bool]:
        """Moves each schedule that still stands where the tick expects it, and inserts the tick's job in the same transaction."""
        answers = await self._call(lambda: settings.fire(self._db, ticks))
        if any(answers):
            self.announce()
        return answers

    async def workers(self) -> list[WorkerInfo]:
        """The workers that reported themselves within the last hour, by id."""
        return await self._call(lambda: leases.workers(self._db))

    # -- Events, and the server itself --------------------------------------------------------------------------------

    async def record_events(self, events: Sequence[Event]) -> None:
        """Appends events to the log."""
        await self._call(lambda: eventlog.record_events(self._db, events), repeat=False)

    async def read_events(self, after_seq: int, limit: int) -> list[Event]:
        """The events after a place in the log, oldest first."""
        return await self._call(lambda: eventlog.read_events(self._db, after_seq, limit))

    async def promise(self) -> Promise:
        """What the server's real settings keep."""
        return await self._call(lambda: promise.promise(self._db))

    async def describe(self) -> dict[str, object]:
        """What there is to know about the server, for `mulligan doctor`."""
        trouble = self._opened().hints.trouble
        return await self._call(lambda: promise.describe(self._db, trouble))
