"""The memory store: the reference model of the storage contract. What it answers is what every other store must answer.

Rows are frozen Job values in one dictionary, and every call is one step under one lock. Nothing survives the process.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec.structs import replace

from mulligan.core.change import Change, Dead, Grip, Verdict, check_all_writable
from mulligan.core.choosing import Choice, sooner
from mulligan.core.clock import SECOND_US, Clock, SystemClock
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
from mulligan.core.errors import IllegalMove
from mulligan.core.events import Event, EventKind, stored_events_of
from mulligan.core.job import Job, NewJob, Status, first_row
from mulligan.core.limits import Level
from mulligan.core.receipt import Receipt, check_receipt
from mulligan.core.schedule import Schedule, Tick
from mulligan.stores.listener import LocalListener, LocalListeners
from mulligan.stores.memory_claims import Claims
from mulligan.stores.memory_events import EventLog
from mulligan.stores.memory_index import Index
from mulligan.stores.memory_limits import Limits, Notes
from mulligan.stores.memory_lines import Lines
from mulligan.stores.memory_receipts import Receipts
from mulligan.stores.memory_rows import check_limit, check_prunable, claimed, is_held, matches, refusal_of, settled, verdict_on
from mulligan.stores.memory_schedules import Schedules
from mulligan.stores.memory_stats import PROMISE, count_queues

WORKER_MEMORY_US = 3_600 * SECOND_US  # how long a silent worker is listed


class MemoryStore:
    """A store in this process's memory: new → open → closed, and open again with the same rows."""

    width = Width(ahead=2_000, batch=1_000)

    def __init__(self, clock: Clock | None = None) -> None:
        self.url = "memory://"
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._opened = False
        self._jobs: dict[str, Job] = {}
        self._index = Index()
        self._claims = Claims()
        self._limits = Limits(self._jobs, self._index)
        self._lines = Lines(self._index, self._limits)
        self._notes = Notes()
        self._receipts = Receipts()
        self._queues: dict[str, QueueState] = {}
        self._schedules = Schedules()
        self._workers: dict[str, WorkerInfo] = {}
        self._events = EventLog()
        self._listeners = LocalListeners()

    # -- Life ---------------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Makes the store usable; opening an open store changes nothing."""
        self._opened = True

    async def close(self) -> None:
        """Ends all use; closing a closed store changes nothing."""
        with self._lock:
            self._opened = False
        self._listeners.close()

    async def now_us(self) -> int:
        """The store's time."""
        with self._step() as now_us:
            return now_us

    @contextmanager
    def _step(self) -> Iterator[int]:
        """One atomic step of an open store, at the time it yields."""
        with self._lock:
            self._check_open()
            yield self._clock.now_us()

    def _check_open(self) -> None:
        if not self._opened:
            raise IllegalMove("this store is not open: await store.open() first; a closed store must be opened again")

    # -- Jobs: insert, claim, renew, settle ---------------------------------------------------------------------------

    async def insert(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        """Stores new jobs; see Inserted for what a known id or a taken unique key answers."""
        with self._step() as now_us:
            answers = [self._insert(job, now_us) for job in jobs]
        self.announce()
        return answers

    def _insert(self, job: NewJob, now_us: int) -> Inserted:
        if job.id not in self._jobs:
            owner = self._index.owner(job.queue, job.unique_key)
            if owner is not None:
                return Inserted(id=owner, created=False, at_us=now_us)
            self._put(first_row(job, now_us))
        return Inserted(id=job.id, created=True, at_us=now_us)

    async def claim(self, claim_id: str, owner: str, asks: Sequence[Ask], total: int, lease_us: int) -> Claimed:
        """Takes due jobs under a lease, or returns what an earlier claim of the same id still holds."""
        with self._step() as now_us:
            if total <= 0 or not asks:
                return Claimed(jobs=[], now_us=now_us, next_due_us=None)
            queues = {ask.queue for ask in asks if not self._is_paused(ask.queue)}
            if claim_id in self._claims:
                ids = [job_id for job_id in self._claims[claim_id][1] if self._holds(claim_id, job_id)]
                return self._answer(ids, queues, total, now_us)
            choice, ledger, turns = self._lines.choose(asks, queues, total, now_us)
            for one in choice.jobs:
                self._put(claimed(self._jobs[one.job.id], claim_id, owner, now_us, lease_us))
                self._limits.take(asks[one.ask], one, ledger)
            self._limits.levels.update(ledger.writes())
            ids = [one.job.id for one in choice.jobs]
            self._claims.remember(claim_id, ids, now_us)
            told = {"held_back": choice.held_back, "turns": turns, "levels": ledger.levels()}
            return self._answer(ids, queues, total, now_us, choice, **told)

    def _answer(self, ids: list[str], queues: set[str], total: int, now_us: int, choice: Choice | None = None, **more: Any) -> Claimed:
        next_due_us = None
        if len(ids) < total:
            next_due_us = sooner([self._index.next_due_us(queue, now_us) for queue in queues], choice, now_us)
        jobs = [self._read(job_id, now_us) for job_id in ids]
        return Claimed(jobs=jobs, now_us=now_us, next_due_us=next_due_us, **more)

    def _holds(self, claim_id: str, job_id: str) -> bool:
        job = self._jobs.get(job_id)
        return job is not None and job.status == "processing" and job.claim_id == claim_id

    async def renew(self, grips: Sequence[Grip], lease_us: int, worker: WorkerInfo | None = None) -> list[Renewal]:
        """Lengthens the leases that are still held, and notes that the worker lives."""
        with self._step() as now_us:
            answers = [self._renew(grip, now_us, lease_us) for grip in grips]
            if worker is not None:
                self._workers[worker.id] = replace(worker, seen_at_us=now_us)
                self._workers = {known.id: known for known in self._workers.values() if known.seen_at_us >= now_us - WORKER_MEMORY_US}
            return answers

    def _renew(self, grip: Grip, now_us: int, lease_us: int) -> Renewal:
        row = self._jobs.get(grip.job_id)
        if row is None or not is_held(row, grip.fence) or not self._limits.has_slots(row, now_us):
            return Renewal(job_id=grip.job_id, fence=grip.fence, held=False)
        self._put(replace(row, lease_expires_at_us=now_us + lease_us))
        return Renewal(job_id=grip.job_id, fence=grip.fence, held=True, cancel_requested=row.cancel_requested)

    async def settle(self, changes: Sequence[Change]) -> list[Verdict]:
        """Applies each change whose guard holds, in order; the others are refused, one by one."""
        check_all_writable(changes)
        with self._step() as now_us:
            verdicts = [self._settle(change, now_us) for change in changes]
        if any(verdict.applied and verdict.status == "pending" for verdict in verdicts):
            self.announce()
        return verdicts

    def _settle(self, change: Change, now_us: int) -> Verdict:
        row = self._jobs.get(change.job_id)
        refusal = refusal_of(row, change, now_us)
        if row is not None and not refusal and isinstance(change.guard, Dead) and self._index.owner(row.queue, row.unique_key) is not None:
            refusal = "unique key taken"
        if row is not None and refusal and row.settle_id == change.settle_id:
            return verdict_on(row, change, now_us)  # A repeat: it was applied before, and nothing more is written.
        if row is not None and not refusal:
            row = settled(row, change, now_us)
            self._put(row)
        verdict = verdict_on(row, change, now_us, refusal)
        for event in stored_events_of(change, verdict):
            self._events.append(event)
        return verdict

    # -- Jobs: sweeping, cancelling, reading, removing ----------------------------------------------------------------

    async def overdue(self, limit: int) -> list[Job]:
        """Processing jobs whose lease has ended, the oldest end first. Takes nothing over."""
        with self._step() as now_us:
            return [self._read(job_id, now_us) for job_id in self._index.lapsed(now_us, limit)]

    async def request_cancel(self, ids: Sequence[str]) -> list[CancelAnswer]:
        """Cancels pending jobs at once, and asks the holders of processing ones to stop."""
        with self._step() as now_us:
            return [self._request_cancel(job_id, now_us) for job_id in ids]

    def _request_cancel(self, job_id: str, now_us: int) -> CancelAnswer:
        row = self._jobs.get(job_id)
        if row is None:
            return "missing"
        if row.status == "pending":
            self._put(replace(row, status="cancelled", cancel_requested=True, run_at_us=None, finished_at_us=now_us, updated_at_us=now_us))
            self._events.append_of(row, "CANCELLED", now_us)
            return "cancelled"
        if row.status == "processing":
            self._put(replace(row, cancel_requested=True))
            return "requested"
        return "cancelled" if row.status == "cancelled" else "finished"

    async def get(self, ids: Sequence[str]) -> list[Job | None]:
        """The jobs with their histories, in the order of the ids; None where there is no such job."""
        with self._step() as now_us:
            return [None if (row := self._jobs.get(job_id)) is None else replace(row, read_at_us=now_us) for job_id in ids]

    async def restore(self, jobs: Sequence[Job], receipts: Mapping[str, Sequence[Receipt]] = {}) -> list[bool]:
        """Writes jobs of another store as they were there; False for an id that is there already."""
        with self._step():
            self._index.check_free([job for job in jobs if job.id not in self._jobs])
            answers = []
            for job in jobs:
                answers.append(job.id not in self._jobs)
                if answers[-1]:
                    self._put(job)
                    self._receipts.restore(job.id, receipts.get(job.id, ()))
        self.announce()
        return answers

    async def find(self, query: Query, limit: int, after: str | None = None) -> Found:
        """One page of the jobs that match, newest first."""
        check_limit(limit)
        with self._step() as now_us:
            jobs: list[Job] = []
            for job_id in self._index.newest(before=after):
                if not matches(self._jobs[job_id], query):
                    continue
                if len(jobs) == limit:
                    return Found(jobs=jobs, after=jobs[-1].id)
                jobs.append(self._read(job_id, now_us))
            return Found(jobs=jobs, after=None)

    async def stats(self) -> Stats:
        """Every queue that has jobs or a stored setting, counted."""
        with self._step() as now_us:
            return Stats(now_us=now_us, queues=count_queues(self._jobs.values(), self._queues, now_us))

    async def prune(self, status: Status, older_than_us: int, limit: int) -> int:
        """Removes jobs that came to rest long enough ago, oldest first; returns how many."""
        check_prunable(status)
        with self._step() as now_us:
            ids = self._index.finished(status, now_us - older_than_us, limit)
            for job_id in ids:
                self._index.put(self._jobs.pop(job_id), None)
                self._receipts.remove(job_id)
            return len(ids)

    async def put_receipt(self, grip: Grip, name: str, value_json: str | None) -> Receipt | None:
        """Stores the receipt of a step, or finds the one that is there; None if the grip does not hold."""
        check_receipt(name, value_json)
        with self._step() as now_us:
            return self._receipts.put(self._jobs.get(grip.job_id), grip, name, value_json, now_us)

    async def receipts(self, ids: Sequence[str]) -> list[list[Receipt]]:
        """The receipts of each job, in the order in which they were stored."""
        with self._step():
            return [self._receipts.of(job_id) for job_id in ids]

    def _put(self, row: Job) -> None:
        """The only way a row is written."""
        self._index.put(self._jobs.get(row.id), row)
        self._jobs[row.id] = row
        if row.status != "processing":
            self._limits.leave(row.id)

    def _read(self, job_id: str, now_us: int) -> Job:
        return replace(self._jobs[job_id], read_at_us=now_us, history=())

    # -- Queues, schedules, workers -----------------------------------------------------------------------------------

    async def set_queue(self, queue: str, *, paused: bool, reason: str = "", by: str = "") -> QueueState:
        """Stores a queue's settings."""
        with self._step() as now_us:
            changed = paused != self._is_paused(queue)
            state = QueueState(queue=queue, paused=paused, reason=reason, by=by, updated_at_us=now_us)
            self._queues[queue] = state
            if changed:
                kind: EventKind = "QUEUE_PAUSED" if paused else "QUEUE_RESUMED"
                self._events.append(Event(kind=kind, at_us=now_us, queue=queue, detail={"reason": reason, "by": by}))
        if changed and not paused:
            self.announce()
        return state

    async def queue_states(self) -> list[QueueState]:
        """All stored queue settings, by name."""
        with self._step():
            return [self._queues[name] for name in sorted(self._queues)]

    def _is_paused(self, queue: str) -> bool:
        state = self._queues.get(queue)
        return state is not None and state.paused

    async def notes(self, prefix: str) -> list[Note]:
        """The notes whose key begins so, by key."""
        with self._step():
            return self._notes.find(prefix)

    async def put_note(self, key: str, body: str, version: int) -> Note | None:
        """Writes a note over the version given; None if it has another one."""
        with self._step() as now_us:
            return self._notes.put(key, body, version, now_us)

    async def levels(self) -> dict[str, Level]:
        """What is stored of every bucket."""
        with self._step():
            return dict(self._limits.levels)

    async def pulse(self, queues: Sequence[str]) -> list[Pulse]:
        """How full queues are."""
        with self._step() as now_us:
            return [self._index.pulse(queue, now_us) for queue in queues]

    async def put_schedule(self, schedule: Schedule) -> Schedule:
        """Stores a schedule; one of the same name and interval goes on from where it stands."""
        with self._step() as now_us:
            return self._schedules.put(schedule, now_us)

    async def set_schedule_paused(self, name: str, paused: bool) -> bool:
        """Pauses or resumes a schedule; False if there is none of that name."""
        with self._step() as now_us:
            return self._schedules.set_paused(name, paused, now_us)

    async def remove_schedule(self, name: str) -> bool:
        """Removes a schedule, not the jobs it made; False if there is none of that name."""
        with self._step():
            return self._schedules.remove(name)

    async def schedules(self) -> list[Schedule]:
        """All schedules, by name."""
        with self._step():
            return self._schedules.all()

    async def fire(self, ticks: Sequence[Tick]) -> list[bool]:
        """Moves each schedule that still stands where the tick expects it, and inserts the tick's job in the same step."""
        with self._step() as now_us:
            answers = []
            for tick in ticks:
                answers.append(self._schedules.move(tick))
                if answers[-1] and tick.job is not None:
                    self._insert(tick.job, now_us)
        if any(answers):
            self.announce()
        return answers

    async def workers(self) -> list[WorkerInfo]:
        """The workers that reported themselves within the last hour, by id."""
        with self._step():
            return [self._workers[worker_id] for worker_id in sorted(self._workers)]

    # -- Events and wake-ups ------------------------------------------------------------------------------------------

    async def record_events(self, events: Sequence[Event]) -> None:
        """Appends events to the log."""
        with self._step():
            for event in events:
                self._events.append(event)

    async def read_events(self, after_seq: int, limit: int) -> list[Event]:
        """The events after a place in the log, oldest first."""
        with self._step():
            return self._events.read(after_seq, limit)

    async def promise(self) -> Promise:
        """Nothing outlives the process."""
        with self._step():
            return PROMISE

    async def describe(self) -> dict[str, object]:
        """How much there is of it."""
        with self._step():
            return {"jobs": len(self._jobs), "events": len(self._events)}

    async def near(self) -> None:
        """Nothing is nearer."""

    def listen(self) -> LocalListener:
        """A new ear for wake-ups; close it when done."""
        with self._lock:
            self._check_open()
        return self._listeners.listen()

    def announce(self) -> None:
        """Hints to every listener that there may be work."""
        self._listeners.hint()
