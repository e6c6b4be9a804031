"""A machine that makes the same calls on a store and on the memory model, and compares every answer and the whole state after each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from mulligan.core.change import Change, Dead, Grip, Held, Lapsed
from mulligan.core.clock import SECOND_US, ManualClock
from mulligan.core.contract import Ask, Order, Query, Store
from mulligan.core.events import Event
from mulligan.core.groups import DOWNSTREAM, FAIR, group_of
from mulligan.core.job import LANES, STATUSES, Job, Lane, NewJob, Status
from mulligan.core.limits import Limit, Slots
from mulligan.core.schedule import Missed, Tick, plan_ticks
from mulligan.stores import open_store
from tests import builders
from tests.builders import new_job, us
from tests.model.ledger import Ledger

# queue, priority, delay, unique key, absolute time, pick of an id, parts of a group
Wish = tuple[str, int, float, str | None, bool, int, tuple[str | None, str | None, str | None, str | None]]
QUEUES = ("a", "b")
PRIORITIES = (0, 1)
WAYS: dict[str, Callable[..., Change]] = {
    "done": builders.done,
    "retry": builders.retry,
    "failed": builders.failed,
    "snooze": builders.snooze,
    "release": builders.release,
    "crash": builders.crash,
    "cancelled": builders.cancelled,
    "requeue": builders.requeue,
}

WAY_IS_BACK = {way: way not in ("done", "failed", "cancelled") for way in WAYS}

NOBODY = (None, None, None, None)
GROUPS = (
    NOBODY,
    NOBODY,
    ("x", None, None, None),
    ("y", "d", None, None),
    ("x", "d", "t", None),
    (None, None, None, "k"),
    ("y", None, None, "k"),
)
LIMITS: tuple[Limit, ...] = (
    Slots(most=2),
    Slots(most=1, lane="retry"),
    Slots(most=1, by_key=True),
    builders.bucket("some", per_s=0.3, burst=2),
    builders.bucket("retries", per_s=0.1, burst=1.5, ratio=0.3, lane="retry"),
    builders.bucket("tenants", per_s=1, burst=1, part=FAIR),
    builders.bucket("shut", burst=0, part=DOWNSTREAM, value="d"),
)

queues = st.sampled_from(QUEUES)
limits = st.one_of(st.just(()), st.just(()), st.lists(st.sampled_from(LIMITS), max_size=2, unique=True).map(tuple))
delays = st.sampled_from([0, 0, 0, 0, 1, 5, 60])
picks = st.integers(0, 40)
every_ask = [Ask(queue=queue, lane=lane, priority=priority, guaranteed=1) for priority in PRIORITIES for queue in QUEUES for lane in LANES]
some_asks = st.lists(
    st.builds(
        Ask,
        queue=queues,
        lane=st.sampled_from(LANES),
        priority=st.sampled_from(PRIORITIES),
        guaranteed=st.integers(0, 3),
        order=st.sampled_from(["run_at", "created_at"]),
        limits=limits,
        after=st.sampled_from(["", "x ", "zz"]),
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda ask: (ask.queue, ask.lane, ask.priority),
)
asks = st.one_of(st.just(every_ask), some_asks)
leases = st.sampled_from([1, 10, 100])
waits = st.sampled_from([0, 0, 1, 20])
wish = st.tuples(
    queues, st.sampled_from(PRIORITIES), delays, st.sampled_from([None, "k", "l", "m"]), st.booleans(), picks, st.sampled_from(GROUPS)
)
outcomes = st.sampled_from(["done", "retry", "failed", "failed", "snooze", "release", "cancelled", "held", "held"])
changes = st.lists(st.tuples(picks, st.sampled_from(sorted(WAYS)), delays, st.sampled_from([0, 0, 0, -1, 1])), min_size=1, max_size=4)


class StoreMachine(RuleBasedStateMachine):
    """The rules draw from small sets of queues, keys and times, so that calls meet on the same jobs."""

    def __init__(self, make_store: Callable[[ManualClock], Store]) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.loop = asyncio.new_event_loop()
        self.model, self.store = open_store("memory://", clock=self.clock), make_store(self.clock)
        self.ledger = Ledger()
        self.state: dict[str, Any] = {}
        self.ids: list[str] = []  # every id ever made, pruned ones too
        self.claim_ids: dict[str, int] = {}  # those that took jobs, and when
        self.old_changes: list[Change] = []
        self.count = 0
        self.seen_at_us: int | None = None  # the time of the last look; None once a call has been made since

    # -- The two stores side by side ----------------------------------------------------------------------------------

    @initialize(wishes=st.lists(wish, min_size=4, max_size=8), ways=st.lists(st.tuples(outcomes, delays), max_size=6))
    def open(self, wishes: list[Wish], ways: list[tuple[str, float]]) -> None:
        """Opens both stores, puts the first jobs into them and works on some, so that no run starts from nothing."""
        self.both(lambda store: store.open())
        self.insert(wishes)
        self.look()
        self.work(ways, 10, 0, len(ways))

    def teardown(self) -> None:
        """Closes both stores."""
        self.both(lambda store: store.close())
        self.loop.close()

    def both(self, call: Callable[[Store], Awaitable[Any]], same: Callable[[Any], Any] = lambda answer: answer) -> Any:
        """Makes a call on both; the answers must agree, in what `same` keeps of them."""

        async def run() -> tuple[Any, Any]:
            return await call(self.model), await call(self.store)

        self.seen_at_us = None
        expected, answer = self.loop.run_until_complete(run())
        assert same(answer) == same(expected), f"answers differ\nstore: {answer}\nmodel: {expected}"
        return answer

    @invariant()
    def the_whole_state_is_the_models(self) -> None:
        """After each step both stores show the same, and the ledger agrees."""
        self.look()

    def look(self) -> None:
        """Reads and compares everything, unless nothing was called and no time has passed since the last look."""
        if self.seen_at_us == self.clock.now_us():
            return
        self.state = self.both(builders.full_state, same=comparable)
        self.ledger.check(self.state["jobs"])
        self.seen_at_us = self.clock.now_us()

    def next_id(self) -> str:
        """A new id; ids do not rise with creation here, so that the two orders are told apart."""
        self.count += 1
        self.ids.append(f"00000000-0000-7000-8000-{self.count * 7_919 % 10_007:012x}")
        return self.ids[-1]

    def row(self, pick: int) -> Job | None:
        """One of the stored jobs; every other pick falls on one that is being processed, if there is any."""
        rows = list(self.ledger.rows.values())
        held = [row for row in rows if row.status == "processing"]
        among = held if held and pick % 2 else rows
        return among[pick // 2 % len(among)] if among else None

    # -- Producers ----------------------------------------------------------------------------------------------------

    @rule(wishes=st.lists(wish, min_size=1, max_size=5))
    def insert_more(self, wishes: list[Wish]) -> None:
        """Producers go on."""
        self.insert(wishes)

    def insert(self, wishes: list[Wish]) -> None:
        """New jobs, some with a unique key, an absolute time, or an id that was used before."""
        jobs: list[NewJob] = []
        known = list(self.ids)
        for queue, priority, delay_s, key, absolute, pick, parts in wishes:
            if jobs and pick == 1:
                jobs.append(jobs[-1])  # The very same job twice in a batch.
                continue
            job_id = known[pick] if pick < len(known) and pick % 4 == 3 else self.next_id()
            eta_us = self.clock.now_us() + us(delay_s) - us(2) if absolute else None
            fields: dict[str, Any] = {"tags": ("made", f"t{pick % 3}"), "unique_key": key, "eta_us": eta_us}
            fields |= {"fair_key": parts[0], "concurrency_key": parts[3], "group": group_of(*parts)}
            jobs.append(new_job(queue, id=job_id, priority=priority, delay_s=delay_s, **fields))
        self.ledger.inserted(jobs, self.both(lambda store: store.insert(jobs)))

    @rule(picked=st.lists(picks, min_size=1, max_size=2))
    def cancel(self, picked: list[int]) -> None:
        """Cancels, of jobs in all states, pruned and unknown ones too."""
        ids = [self.ids[pick] if pick < len(self.ids) else "00000000-0000-7000-8000-ffffffffffff" for pick in picked]
        self.both(lambda store: store.request_cancel(ids))

    # -- Workers ------------------------------------------------------------------------------------------------------

    @rule(wanted=asks, total=st.integers(0, 6), lease_s=leases)
    def claim(self, wanted: list[Ask], total: int, lease_s: int) -> None:
        """A claim under a new id."""
        self.do_claim(self.fresh("c"), wanted, total, lease_s)

    @rule(
        queue=queues,
        priority=st.sampled_from(PRIORITIES),
        total=st.integers(1, 4),
        order=st.sampled_from(["run_at", "created_at"]),
        limits=limits,
    )
    def claim_both_lanes(self, queue: str, priority: int, total: int, order: Order, limits: tuple[Limit, ...]) -> None:
        """A claim over both lanes of a queue, by age or by due time."""
        wanted = Ask(queue=queue, lane=None, priority=priority, guaranteed=total, order=order, limits=limits)
        self.do_claim(self.fresh("c"), [wanted], total, 10)

    @rule(key=st.sampled_from(["n", "n:1"]), body=st.sampled_from(["one", "two"]), offset=st.sampled_from([0, 0, -1, 1]))
    def put_note(self, key: str, body: str, offset: int) -> None:
        """A note over the version that is there, or over another."""
        known = {note.key: note.version for note in self.state["notes"]}
        self.both(lambda store: store.put_note(key, body, max(0, known.get(key, 0) + offset)))

    @rule(ways=st.lists(st.tuples(outcomes, delays), min_size=1, max_size=4), lease_s=leases, wait_s=waits, stopped=st.integers(0, 3))
    def work_on(self, ways: list[tuple[str, float]], lease_s: int, wait_s: float, stopped: int) -> None:
        """Workers go on; without this rule few jobs would come far."""
        self.work(ways, lease_s, wait_s, stopped)

    def work(self, ways: list[tuple[str, float]], lease_s: int, wait_s: float, stopped: int) -> None:
        """A worker claims, takes its time, and ends some of what it got, one perhaps under a cancel request."""
        jobs = self.do_claim(self.fresh("c"), every_ask, len(ways), lease_s)
        self.look()
        self.clock.advance(wait_s)
        ids = [job.id for job in jobs[stopped : stopped + 1]]
        self.both(lambda store: store.request_cancel(ids))
        self.look()
        self.do_settle([self.outcome(job, way, delay_s) for job, (way, delay_s) in zip(jobs, ways, strict=False) if way != "held"])

    @precondition(lambda self: self.claim_ids)
    @rule(pick=picks, wanted=asks, total=st.integers(1, 6))
    def claim_again(self, pick: int, wanted: list[Ask], total: int) -> None:
        """The same claim once more, as after a lost reply."""
        self.do_claim(list(self.claim_ids)[pick % len(self.claim_ids)], wanted, total, 10)

    def do_claim(self, claim_id: str, wanted: list[Ask], total: int, lease_s: float) -> list[Job]:
        """Makes a claim and notes it."""
        repeated = claim_id in self.claim_ids
        answer = self.both(lambda store: store.claim(claim_id, "worker", wanted, total, us(lease_s)))
        self.ledger.claimed(answer, self.state["queues"], repeated=repeated)
        if answer.jobs:
            self.claim_ids.setdefault(claim_id, answer.now_us)
        jobs: list[Job] = answer.jobs
        return jobs

    @rule(
        grips=st.lists(st.tuples(picks, st.sampled_from([0, 0, -1, 1])), max_size=3),
        lease_s=st.sampled_from([1, 30]),
        worker=st.sampled_from([None, "w1", "w2"]),
    )
    def renew(self, grips: list[tuple[int, int]], lease_s: int, worker: str | None) -> None:
        """Renewals with right and wrong fences, with and without the worker's report."""
        held = [Grip(row.id, row.fence + offset) for pick, offset in grips if (row := self.row(pick)) is not None]
        info = None if worker is None else builders.worker_info(worker, running=len(held))
        self.both(lambda store: store.renew(held, us(lease_s), info))

    @precondition(lambda self: self.ledger.rows)
    @rule(wishes=changes)
    def settle(self, wishes: list[tuple[int, str, float, int]]) -> None:
        """A batch of outcomes of any jobs, with right and wrong guards."""
        batch: list[Change] = []
        for pick, way, delay_s, offset in wishes:
            row = self.row(pick)
            if row is not None:
                batch.append(self.guarded(self.outcome(row, way, delay_s), offset))
        self.do_settle(batch)

    @precondition(lambda self: self.old_changes)
    @rule(picked=st.lists(picks, min_size=1, max_size=3))
    def settle_again(self, picked: list[int]) -> None:
        """Settlements once more, as after a lost reply or from a stale worker."""
        batch = [self.old_changes[pick % len(self.old_changes)] for pick in picked]
        self.ledger.settled(batch, self.both(lambda store: store.settle(batch)))

    @rule(limit=st.integers(0, 4), sweepers=st.integers(1, 2))
    def sweep(self, limit: int, sweepers: int) -> None:
        """One or two sweepers that saw the same overdue jobs."""
        jobs: list[Job] = self.both(lambda store: store.overdue(limit))
        for _ in range(sweepers):
            self.do_settle([builders.crash(job, delay_s=job.crashes, settle_id=self.fresh("s")) for job in jobs])
            self.look()

    def fresh(self, prefix: str) -> str:
        """A claim_id or settle_id that was never used."""
        self.count += 1
        return f"{prefix}-{self.count}"

    def outcome(self, job: Job, way: str, delay_s: float) -> Change:
        """A change of the job, under a new settle_id."""
        delay = {"delay_s": delay_s} if WAY_IS_BACK[way] else {}
        return WAYS[way](job, **delay, settle_id=self.fresh("s"))

    def guarded(self, change: Change, offset: int) -> Change:
        """The change with its guard moved off the mark by this much."""
        guard = change.guard
        if isinstance(guard, Dead):
            return replace(change, guard=Dead(guard.generation + offset))
        return replace(change, guard=(Lapsed if isinstance(guard, Lapsed) else Held)(guard.fence + offset))

    def do_settle(self, batch: list[Change]) -> None:
        """Settles and notes it."""
        self.ledger.settled(batch, self.both(lambda store: store.settle(batch)))
        # Nobody holds a fence or generation of the future; such a change may be refused now, but must not come true later.
        self.old_changes += [change for change in batch if not self.is_of_the_future(change)]

    def is_of_the_future(self, change: Change) -> bool:
        """Whether the guard names a fence or generation that the job did not have yet."""
        row, guard = self.ledger.rows[change.job_id], change.guard
        return guard.generation > row.generation if isinstance(guard, Dead) else guard.fence > row.fence

    # -- Operators and time -------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.000001, 0.5, 1, 5, 30, 100, 4_000, -1]))
    def time_passes(self, seconds: float) -> None:
        """The clock moves; now and then it is set back."""
        self.clock.advance(seconds)
        known_from_us = self.clock.now_us() - 3_599 * SECOND_US
        self.claim_ids = {claim_id: at_us for claim_id, at_us in self.claim_ids.items() if at_us >= known_from_us}

    @precondition(lambda self: any(row.status == "failed" for row in self.ledger.rows.values()))
    @rule(pick=picks, delay_s=delays, rival=st.booleans(), late=st.booleans())
    def requeue(self, pick: int, delay_s: float, rival: bool, late: bool) -> None:
        """Two operators send the same failed job back, perhaps after another job has taken its unique key.

        A late third one, who read the job before it was sent back and failed again, must not win.
        """
        dead = [row for row in self.ledger.rows.values() if row.status == "failed"]
        row = dead[pick % len(dead)]
        if rival:
            jobs = [new_job(row.queue, id=self.next_id(), unique_key=row.unique_key)]
            self.ledger.inserted(jobs, self.both(lambda store: store.insert(jobs)))
            self.look()
        self.do_settle([builders.requeue(row, delay_s, by=who, settle_id=self.fresh("s")) for who in ("ann", "bob")])
        self.look()
        if late:
            taken = self.do_claim(self.fresh("c"), every_ask, 50, 10)
            self.look()
            self.do_settle([self.outcome(job, "failed", 0) for job in taken if job.id == row.id])
            self.look()
            self.do_settle([builders.requeue(row, by="cem", settle_id=self.fresh("s"))])

    @rule(status=st.sampled_from(["done", "failed", "cancelled"]), older_than_s=st.sampled_from([0, 1, 30]), limit=st.integers(0, 3))
    def prune(self, status: Status, older_than_s: float, limit: int) -> None:
        """Retention."""
        count = self.both(lambda store: store.prune(status, us(older_than_s), limit))
        self.ledger.pruned(status, self.clock.now_us() - us(older_than_s), count)

    @rule(queue=queues, paused=st.booleans(), reason=st.sampled_from(["", "why"]), total=st.integers(0, 2))
    def set_queue(self, queue: str, paused: bool, reason: str, total: int) -> None:
        """Pause or resume, and a claim that sees it. Mostly resumed again, or soon nothing would move any more."""
        self.both(lambda store: store.set_queue(queue, paused=paused, reason=reason, by="ann"))
        self.look()
        self.do_claim(self.fresh("c"), every_ask, total, 10)
        self.look()
        if reason:
            self.both(lambda store: store.set_queue(queue, paused=False))

    @rule(
        status=st.sampled_from([None, *STATUSES]),
        queue=st.sampled_from([None, *QUEUES]),
        lane=st.sampled_from([None, "fresh", "retry"]),
        tag=st.sampled_from([None, "t1"]),
        limit=st.integers(1, 4),
    )
    def find(self, status: Status | None, queue: str | None, lane: Lane | None, tag: str | None, limit: int) -> None:
        """All pages of a query."""
        query = Query(status=status, queue=queue, lane=lane, tag=tag)
        after: str | None = None
        for _ in range(200):
            place = after
            page = self.both(lambda store, place=place: store.find(query, limit, place))  # type: ignore[misc]
            after = page.after
            if after is None:
                break

    @rule(
        kinds=st.lists(st.sampled_from(["WORKER_STARTED", "WORKER_STOPPED"]), max_size=3),
        after_seq=st.integers(0, 10),
        limit=st.integers(0, 5),
    )
    def log(self, kinds: list[Any], after_seq: int, limit: int) -> None:
        """Events recorded by a worker, and a page of the log."""
        events = [Event(kind=kind, at_us=self.clock.now_us(), worker="w", detail={"n": [1, None]}) for kind in kinds]
        self.both(lambda store: store.record_events(events))
        self.both(lambda store: store.read_events(after_seq, limit))

    # -- Schedules ----------------------------------------------------------------------------------------------------

    @rule(
        name=st.sampled_from("xy"),
        interval_s=st.sampled_from([1, 30]),
        missed=st.sampled_from(["one", "skip", "all"]),
        anchored=st.booleans(),
        wait_s=st.sampled_from([0, 1, 31]),
        schedulers=st.integers(0, 2),
        offset=st.sampled_from([0, 0, 0, 1]),
        key=st.sampled_from([None, None, "k"]),
    )
    def keep_schedule(
        self, name: str, interval_s: float, missed: Missed, anchored: bool, wait_s: float, schedulers: int, offset: int, key: str | None
    ) -> None:
        """A program starts and puts its schedule, perhaps a changed one; after a while one or two schedulers fire what is due."""
        known = {one.name: one for one in self.state["schedules"]}
        if name not in known or known[name].interval_us != us(interval_s):
            self.ledger.schedule_reset(name)
        anchor_us = self.clock.now_us() - us(40) if anchored else 0
        self.both(lambda store: store.put_schedule(builders.schedule(name, interval_s, missed=missed, anchor_us=anchor_us)))
        self.clock.advance(wait_s)
        self.look()
        self.fire(schedulers, offset, key)

    @rule(name=st.sampled_from("xy"), paused=st.sampled_from([True, False, None]), schedulers=st.integers(0, 2))
    def touch_schedule(self, name: str, paused: bool | None, schedulers: int) -> None:
        """An operator pauses, resumes or removes a schedule, while others fire it."""
        if paused is None:
            self.both(lambda store: store.remove_schedule(name))
            self.ledger.schedule_reset(name)
        else:
            self.both(lambda store: store.set_schedule_paused(name, paused))
        self.fire(schedulers, 0, None)  # They still see the state before.

    def fire(self, schedulers: int, offset: int, key: str | None) -> None:
        """Schedulers that saw the same state fire what is due, each with jobs of its own; now and then from a wrong place."""
        for ticks in [self.due_ticks(offset, key) for _ in range(schedulers)]:
            self.ledger.fired(ticks, self.both(lambda store, ticks=ticks: store.fire(ticks)))  # type: ignore[misc]
            self.look()

    def due_ticks(self, offset: int, key: str | None) -> list[Tick]:
        """What a scheduler would fire now, shifted by the offset."""
        ticks: list[Tick] = []
        for one in self.state["schedules"]:
            planned, next_tick_us = plan_ticks(one, self.clock.now_us(), limit=2)
            if not planned and next_tick_us != one.next_tick_us:
                ticks.append(Tick(name=one.name, expected_us=one.next_tick_us, next_tick_us=next_tick_us, job=None))
            expected_us = one.next_tick_us + offset
            for tick_us, following_us in zip(planned, [*planned, next_tick_us][1:], strict=True):
                trace = self.ledger.incarnation(one.name)
                job = new_job("a", id=self.next_id(), schedule=one.name, tick_us=tick_us, unique_key=key, trace=trace)
                ticks.append(Tick(name=one.name, expected_us=expected_us, next_tick_us=following_us, job=job))
                expected_us = following_us
        return ticks


def comparable(state: dict[str, Any]) -> dict[str, Any]:
    """What must be equal of two stores' states."""
    return state
