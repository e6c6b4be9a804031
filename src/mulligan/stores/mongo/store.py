"""The MongoDB store: a replica set, any number of processes on any number of machines.

new → open → closed, and open again. Each method is one piece of work on the loop of the driver; the work is in the modules named after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from pymongo import AsyncMongoClient
from pymongo.errors import PyMongoError

from mulligan.core.change import Change, Grip, Verdict, check_all_writable
from mulligan.core.clock import Clock
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
    WorkerInfo,
)
from mulligan.core.errors import BadSetting, MulliganError, StoreUnavailable
from mulligan.core.events import Event
from mulligan.core.ids import new_id
from mulligan.core.job import Job, NewJob, Status
from mulligan.core.limits import Level
from mulligan.core.receipt import Receipt, check_receipt
from mulligan.core.schedule import Schedule, Tick
from mulligan.stores.mongo import (
    claim,
    eventlog,
    find,
    insert,
    leases,
    limits,
    notes,
    promise,
    pulse,
    receipts,
    schema,
    settings,
    settle,
    stats,
    take,
    wake,
)
from mulligan.stores.mongo.abandoned import APP_NAME
from mulligan.stores.mongo.database import Client, Database
from mulligan.stores.mongo.faults import is_access_refused, translated
from mulligan.stores.network.options import CONNECTIONS, TIMEOUT_S
from mulligan.stores.network.store import NetworkStore

WIRE_VERSION_MIN = 17  # MongoDB 6.0
HINT_GAP_S = 0.02  # between two hints to other processes


class MongoStore(NetworkStore):
    """Jobs in a database of a MongoDB replica set."""

    def __init__(
        self,
        driver_url: str,
        database: str,
        *,
        shown_url: str,
        clock: Clock | None = None,
        timeout_s: float = TIMEOUT_S,
        connections: int = CONNECTIONS,
        letters: str | None = None,
    ) -> None:
        super().__init__(shown_url, f"MongoDB at {shown_url.partition('://')[2].rpartition('@')[2]}", clock=clock, timeout_s=timeout_s)
        self._driver_url = driver_url
        self._name = database
        self._connections = connections
        self._letters = letters
        self._client: Client | None = None
        self._database: Database | None = None
        self._tail: wake.Tail | None = None  # begun with the store, and used by the first subscription

    # -- Life ---------------------------------------------------------------------------------------------------------

    async def _connect(self) -> None:
        if self._database is not None:
            return
        self._client = client = self._new_client()
        database = self._database_of(client)
        try:
            await self._check_server(client)
            await schema.prepare(database)
            await eventlog.find_end(database)
            with suppress(PyMongoError):  # hints are only hints; the subscription tries again, and says why it cannot
                self._tail = await wake.follow(database)
        except Exception as problem:
            if is_access_refused(problem):
                raise BadSetting(str(translated(problem, self._where))) from problem
            raise
        self._database = database

    def _new_client(self) -> Client:
        ms = int(self._timeout_s * 1_000)
        return AsyncMongoClient(
            self._driver_url,
            maxPoolSize=self._connections + 1,  # one of them hears hints
            serverSelectionTimeoutMS=ms * 8 // 10,
            connectTimeoutMS=min(5_000, ms),
            socketTimeoutMS=ms,
            waitQueueTimeoutMS=ms,
            appname=APP_NAME,
        )

    def _database_of(self, client: Client) -> Database:
        return Database(client, self._name, clock=self._now_us, wait_ms=int(self._timeout_s * 800), letters=self._letters)

    async def stored_version(self) -> int | None:
        """The version of the schema that is there, asked without opening the store; None if there is none."""

        async def ask() -> int | None:
            async with self._new_client() as client:
                await self._check_server(client)
                return await schema.stored_version(self._database_of(client))

        return await self._deadline(ask(), self._timeout_s)

    async def _check_server(self, client: Client) -> None:
        hello = await client.admin.command("hello")
        if "setName" not in hello and hello.get("msg") != "isdbgrid":
            raise BadSetting(
                f"{self._where} is a standalone server, which can not confirm writes by a majority. "
                "Make it a set of one: start mongod with --replSet rs0 and run rs.initiate() once in mongosh; the data stay"
            )
        if hello.get("maxWireVersion", 0) < WIRE_VERSION_MIN:
            version = (await client.admin.command("buildInfo")).get("version")
            raise BadSetting(f"{self._where} is MongoDB {version}; mulligan needs 6.0 or newer")
        if not hello.get("isWritablePrimary", hello.get("ismaster", False)):
            raise StoreUnavailable(
                f"{self._where} is not the primary now; name the replica set in the URL: ?replicaSet={hello.get('setName')}"
            )

    async def _disconnect(self) -> None:
        client, self._client, self._database = self._client, None, None
        tail, self._tail = self._tail, None
        if tail is not None:
            await tail.close()
        if client is not None:
            await client.close()

    def _abandon(self) -> list[object]:
        left: list[object] = [self._client, self._database, self._tail]
        self._client = self._database = self._tail = None
        return left

    def _translated(self, problem: Exception) -> MulliganError:
        return translated(problem, self._where)

    @property
    def _db(self) -> Database:
        if self._database is None:
            raise StoreUnavailable(f"{self._where}: the store was closed in the middle of a call")
        return self._database

    async def now_us(self) -> int:
        """The store's time."""
        return await self._call(lambda: self._db.now_us())

    # -- Hints --------------------------------------------------------------------------------------------------------

    async def _subscribe(self, heard: Callable[[], None]) -> None:
        # Every question is answered within wake.HEAR_MS, so a socket that is silent for the time of a call is a lost connection.
        tail, self._tail = self._tail, None
        if tail is None:
            tail = await wake.follow(self._db)
            heard()  # for what was missed since the one before; the first one stands since the store was opened
        async with tail:
            while tail.alive:
                async for _ in tail:
                    heard()

    async def _spread(self) -> None:
        await wake.spread(self._db)
        await asyncio.sleep(HINT_GAP_S)  # those that come meanwhile go as one

    # -- Jobs: insert, claim, renew, settle ---------------------------------------------------------------------------

    async def _insert(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        return await insert.insert(self._db, jobs)

    async def claim(self, claim_id: str, owner: str, asks: Sequence[Ask], total: int, lease_us: int) -> Claimed:
        """Takes due jobs under a lease, or returns what an earlier claim of the same id still holds."""
        if total <= 0 or not asks:
            return Claimed(jobs=[], now_us=await self.now_us(), next_due_us=None)
        wish = take.Wish(claim_id, owner, asks, total, lease_us)
        return await self._call(lambda: claim.claim(self._db, wish, self._rng))

    async def renew(self, grips: Sequence[Grip], lease_us: int, worker: WorkerInfo | None = None) -> list[Renewal]:
        """Lengthens the leases that are still held, and notes that the worker lives."""
        return await self._call(lambda: leases.renew(self._db, grips, lease_us, worker, self._rng))

    async def settle(self, changes: Sequence[Change]) -> list[Verdict]:
        """Applies each change whose guard holds, in order; the others are refused, one by one."""
        check_all_writable(changes)
        telling = settle.Telling()
        verdicts = await self._call(lambda: settle.settle(self._db, changes, telling))
        if any(verdict.applied and verdict.status == "pending" for verdict in verdicts):
            self.announce()
        return verdicts

    # -- Jobs: sweeping, cancelling, reading, removing ----------------------------------------------------------------

    async def overdue(self, limit: int) -> list[Job]:
        """Processing jobs whose lease has ended, the oldest end first. Takes nothing over; quarantines what cannot be decoded."""
        return await self._call(lambda: leases.overdue(self._db, limit))

    async def request_cancel(self, ids: Sequence[str]) -> list[CancelAnswer]:
        """Cancels pending jobs at once, and asks the holders of processing ones to stop."""
        call = new_id(0)
        return await self._call(lambda: leases.request_cancel(self._db, ids, call))

    async def get(self, ids: Sequence[str]) -> list[Job | None]:
        """The jobs with their histories, in the order of the ids; None where there is no such job."""
        return await self._call(lambda: find.get(self._db, ids))

    async def restore(self, jobs: Sequence[Job], receipts: Mapping[str, Sequence[Receipt]] = {}) -> list[bool]:
        """Writes jobs of another store as they were there; False for an id that is there already."""
        answers = await self._call(lambda: insert.restore(self._db, jobs, receipts))
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

    # -- Queues, schedules, notes, workers -----------------------------------------------------------------------------------

    async def set_queue(self, queue: str, *, paused: bool, reason: str = "", by: str = "") -> QueueState:
        """Stores a queue's settings."""
        state, changed = await self._call(lambda: settings.set_queue(self._db, queue, paused, reason, by))
        if not paused:
            self.announce()
        if changed:
            call = new_id(0)
            await self._call(lambda: settings.tell_queue(self._db, state, call))
        return state

    async def queue_states(self) -> list[QueueState]:
        """All stored queue settings, by name."""
        return await self._call(lambda: settings.queue_states(self._db))

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

    async def notes(self, prefix: str) -> list[Note]:
        """The notes whose key begins so, by key."""
        return await self._call(lambda: notes.notes(self._db, prefix))

    async def put_note(self, key: str, body: str, version: int) -> Note | None:
        """Writes a note over the version given; None if it has another one."""
        return await self._call(lambda: notes.put_note(self._db, key, body, version))

    async def levels(self) -> dict[str, Level]:
        """What is stored of every bucket."""
        return await self._call(lambda: limits.levels(self._db))

    async def pulse(self, queues: Sequence[str]) -> list[Pulse]:
        """How full queues are."""
        return await self._call(lambda: pulse.pulse(self._db, queues))

    async def workers(self) -> list[WorkerInfo]:
        """The workers that reported themselves within the last hour, by id."""
        return await self._call(lambda: leases.workers(self._db))

    # -- Events, and the server itself --------------------------------------------------------------------------------

    async def record_events(self, events: Sequence[Event]) -> None:
        """Appends events to the log."""
        await self._call(lambda: eventlog.append_events(self._db, events), repeat=False)

    async def read_events(self, after_seq: int, limit: int) -> list[Event]:
        """The events after a place in the log, oldest first."""
        return await self._call(lambda: eventlog.read_events(self._db, after_seq, limit))

    async def promise(self) -> Promise:
        """What the replica set can keep with its real settings."""
        return await self._call(lambda: promise.promise(self._db))

    async def describe(self) -> dict[str, object]:
        """What there is to know about the server and the database, for `mulligan doctor`."""
        trouble = self._opened().hints.trouble
        return await self._call(lambda: promise.describe(self._db, trouble))
