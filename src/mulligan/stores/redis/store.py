"""The Redis store: one app's jobs on one server. Every call is one script, which runs whole or not at all.

new → open → closed, and open again; see network/store.py. The work itself is in the modules named after it, and in lua/.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import redis.asyncio as driver
from redis.asyncio.client import PubSub
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.connection import ConnectionPool
from redis.exceptions import RedisError
from redis.retry import Retry

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
    Width,
    WorkerInfo,
)
from mulligan.core.errors import BadSetting, IllegalMove, MulliganError
from mulligan.core.events import Event
from mulligan.core.job import Job, NewJob, Status
from mulligan.core.limits import Level
from mulligan.core.receipt import Receipt, check_receipt
from mulligan.core.schedule import Schedule, Tick
from mulligan.stores.network.inserts import Direct
from mulligan.stores.network.store import NetworkStore
from mulligan.stores.redis import (
    claim,
    durability,
    eventlog,
    find,
    insert,
    leases,
    notes,
    opening,
    receipts,
    repair,
    settings,
    settle,
    stats,
    wake,
)
from mulligan.stores.redis.faults import translated
from mulligan.stores.redis.lines import Lines
from mulligan.stores.redis.losses import Losses
from mulligan.stores.redis.server import BlockingServer, Server
from mulligan.stores.redis.url import Address
from mulligan.stores.redis.wire import Wire

Pool = TypeVar("Pool")


class RedisStore(NetworkStore):
    """Jobs of one app in one Redis (or Valkey). Usable from any event loop and any thread of the process that opened it."""

    width = Width(ahead=1_000, batch=500)  # nothing else happens while a script runs: wider, and worker and server wait for each other
    inserts_at_once = 2  # the server is so quick that waiting for it is a third of the time of a hundred callers

    def __init__(self, address: Address, *, clock: Clock | None = None) -> None:
        super().__init__(address.url, address.where, clock=clock, timeout_s=address.timeout_s)
        self._address = address
        self._losses = Losses(address.where)
        self._server: Server | None = None
        self._lines: Lines | None = None  # for threads that block
        self._spreading = asyncio.Lock()  # of the home loop
        self._told_s = float("-inf")  # when an insert last brought its hint along
        self._first_ear: PubSub | None = None  # stands before the store is open, so that no listener can miss a hint

    # -- Connecting ---------------------------------------------------------------------------------------------------

    async def _connect(self) -> None:
        if self._server is not None:
            return
        self._losses.begin()
        self._spreading = asyncio.Lock()
        client = self._client()
        self._server = Server(client, self._address.app, self._clock, self._losses)
        self._lines = self._blocking_lines()
        await opening.open_keys(self._server, self._address)
        with contextlib.suppress(RedisError, OSError):  # hints are only hints; why there are none is told by `_subscribe`
            self._first_ear = await wake.subscribed(client, self._channel)

    async def is_set_up(self) -> bool:
        """Whether the app's keys have been made; asked of a store that is not open, on the caller's loop. Changes nothing."""
        client = self._client()
        try:
            return await self._deadline(opening.is_set_up(client, self._address.app), self._timeout_s)
        finally:
            await client.aclose()

    def _client(self, connections: int | None = None) -> driver.Redis:
        many = connections or self._address.connections + 1  # one hears the hints
        retry = AsyncRetry(NoBackoff(), 0)  # what may be repeated is decided by the store
        # The deadline of the call counts, for a connection to become free as for an answer.
        return driver.Redis.from_pool(self._pool(driver.BlockingConnectionPool, many, timeout=None, socket_timeout=None, retry=retry))

    def _blocking_lines(self) -> Lines:
        many = self._address.connections
        pool = self._pool(ConnectionPool, many, socket_timeout=self._timeout_s, retry=Retry(NoBackoff(), 0))
        return Lines(pool.make_connection, many, self._timeout_s / 2)

    def _pool(self, kind: type[Pool], connections: int, **options: Any) -> Pool:
        try:
            return kind.from_url(  # type: ignore[attr-defined,no-any-return]
                self._address.driver_url,
                max_connections=connections,
                socket_connect_timeout=self._timeout_s,
                socket_keepalive=True,
                **options,
            )
        except (ValueError, RedisError) as problem:
            raise BadSetting(f"{self.url} is not a Redis URL: {type(problem).__name__}") from None

    async def _disconnect(self) -> None:
        server, self._server = self._server, None
        ear, self._first_ear = self._first_ear, None
        if ear is not None:
            await wake.end(ear)
        if server is not None:
            async with self._spreading:  # a hint under way would otherwise open a connection behind our back
                await server.client.aclose()

    def _end_blocking(self) -> None:
        lines, self._lines = self._lines, None
        if lines is not None:
            lines.close(self._timeout_s)

    def _abandon(self) -> list[object]:
        left: list[object] = [self._server, self._first_ear, self._lines]
        self._server = self._first_ear = self._lines = None
        return left

    def _translated(self, problem: Exception) -> MulliganError:
        return translated(problem, self._where)

    async def _subscribe(self, heard: Callable[[], None]) -> None:
        ear, self._first_ear = self._first_ear, None
        if ear is None:
            ear = await wake.subscribed(self._db.client, self._channel)
            heard()
        await wake.hear(ear, heard)

    async def _spread(self) -> None:
        async with self._spreading:
            if self._server is not None:
                await self._server.client.publish(self._channel, b"")
        await asyncio.sleep(wake.SPACING_S)

    async def _insert(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        return await insert.insert(self._db, jobs)

    def insert_now(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        """The same for a thread that runs no event loop, over a connection that blocks it; see InsertsNow."""
        session, lines = self._opened(), self._lines
        if lines is None:
            raise IllegalMove("this store is closed: await store.open() first")
        if not jobs:
            return []
        server = BlockingServer(lines.execute_command, self._address.app, self._clock, self._losses)
        answers = self._call_now(lambda: insert.insert_now(server, jobs))
        if self._losses.unrecorded:
            with contextlib.suppress(IllegalMove):  # closed meanwhile
                session.home.submit(self._db.record_losses)
        self.announce()
        return answers

    async def _insert_and_tell(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        """The first job after a pause brings its hint along."""
        if len(jobs) == 1 and self._may_tell():
            alone = await insert.insert_alone(self._db, jobs[0], self._channel)
            if alone is not None:
                return alone
        return await super()._insert_and_tell(jobs)

    def _direct(self) -> Direct | None:
        if self._clock is not None:
            return None
        client = self._client(connections=1)
        wire = Wire.over(client.connection_pool)
        if wire is None:
            return None
        server = Server(client, self._address.app, None, self._losses, wire)
        return Direct(insert=lambda jobs: self._insert_over(server, jobs), close=wire.aclose)

    async def _insert_over(self, server: Server, jobs: Sequence[NewJob]) -> list[Inserted]:
        """An insert over a connection of the running loop."""
        if len(jobs) == 1 and self._may_tell():
            alone = await self._call_here(lambda: insert.insert_alone(server, jobs[0], self._channel))
            if alone is not None:
                self.hint_here()
                return alone
        return await self._insert_here(lambda: insert.insert(server, jobs))

    def _may_tell(self) -> bool:
        """Whether a hint may go out beside those that are being sent: not sooner after the last one of its kind than those."""
        now_s = time.monotonic()
        if self.is_spreading or now_s - self._told_s < wake.SPACING_S:
            return False
        self._told_s = now_s
        return True

    @property
    def _channel(self) -> str:
        return f"{self._db.prefix}hints"

    @property
    def _db(self) -> Server:
        if self._server is None:
            raise IllegalMove("this store is closed: await store.open() first")
        return self._server

    # -- Jobs: claim, renew, settle -----------------------------------------------------------------------------------

    async def now_us(self) -> int:
        """The store's time."""
        return (await self._call(lambda: self._db.run("clock"))).now_us

    async def claim(self, claim_id: str, owner: str, asks: Sequence[Ask], total: int, lease_us: int) -> Claimed:
        """Takes due jobs under a lease, or returns what an earlier claim of the same id still holds."""
        if total <= 0 or not asks:
            return Claimed(jobs=[], now_us=await self.now_us(), next_due_us=None)
        return await self._call(lambda: claim.claim(self._db, claim_id, owner, asks, total, lease_us))

    async def renew(self, grips: Sequence[Grip], lease_us: int, worker: WorkerInfo | None = None) -> list[Renewal]:
        """Lengthens the leases that are still held, and notes that the worker lives."""
        return await self._call(lambda: leases.renew(self._db, grips, lease_us, worker))

    async def settle(self, changes: Sequence[Change]) -> list[Verdict]:
        """Applies each change whose guard holds, in order; the others are refused, one by one."""
        check_all_writable(changes)
        verdicts = await self._call(lambda: settle.settle(self._db, changes))
        if any(verdict.status == "pending" and verdict.applied for verdict in verdicts):
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
        """Stores jobs of another store as they were there, with their histories; False for an id that is there already."""
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

    async def pulse(self, queues: Sequence[str]) -> list[Pulse]:
        """How full queues are, counted up to a bound."""
        return await self._call(lambda: stats.pulse(self._db, queues))

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
        state, changed = await self._call(lambda: settings.set_queue(self._db, queue, paused, reason, by))
        if changed and not paused:
            self.announce()
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
        """Moves each schedule that still stands where the tick expects it, and inserts the tick's job in the same script."""
        answers = await self._call(lambda: settings.fire(self._db, ticks), repeat=False)
        if any(answers):
            self.announce()
        return answers

    async def workers(self) -> list[WorkerInfo]:
        """The workers that reported themselves within the last hour, by id."""
        return await self._call(lambda: leases.workers(self._db))

    # -- Notes, events, and the server itself --------------------------------------------------------------------------------

    async def notes(self, prefix: str) -> list[Note]:
        """The notes whose key begins so, by key."""
        return await self._call(lambda: notes.notes(self._db, prefix))

    async def put_note(self, key: str, body: str, version: int) -> Note | None:
        """Writes a note over the version given; None if it has another one."""
        return await self._call(lambda: notes.put_note(self._db, key, body, version))

    async def levels(self) -> dict[str, Level]:
        """What is stored of every bucket."""
        return await self._call(lambda: notes.levels(self._db))

    async def record_events(self, events: Sequence[Event]) -> None:
        """Appends events to the log."""
        await self._call(lambda: eventlog.record_events(self._db, events), repeat=False)

    async def read_events(self, after_seq: int, limit: int) -> list[Event]:
        """The events after a place in the log, oldest first."""
        return await self._call(lambda: eventlog.read_events(self._db, after_seq, limit))

    async def promise(self) -> Promise:
        """What the server can keep with the settings it runs under, and what it has lost."""
        return await self._call(self._promise)

    async def _promise(self) -> Promise:
        facts = await durability.read_facts(self._db.client)
        return durability.promise_of(facts, self._address.durability, await opening.stored_losses(self._db))

    async def describe(self) -> dict[str, object]:
        """What there is to know about the server, for `mulligan doctor`."""
        session = self._opened()
        facts = await self._call(lambda: opening.describe(self._db, self._address))
        trouble = session.hints.trouble
        return {**facts, "hints": f"off: {trouble}" if trouble else "on"}

    async def repair(self) -> dict[str, int]:
        """Mends the indexes and tallies after keys were removed or edited by hand; says how much of what was mended."""
        return await repair.repair(self._db, self._call)

    async def forget_losses(self) -> None:
        """Clears the notes of lost data, once somebody has seen them."""
        await self._call(lambda: opening.forget_losses(self._db))
