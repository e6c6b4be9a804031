"""Watch: sees every step of the store and every move of a handler, keeps the accounts, and calls the checks after each of them.

It believes nobody: not the store, whose rows it compares with the accounts, and not the workers, whose claims of what happened it compares
with what the handlers did.
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence

from mulligan.core.clock import SECOND_US, Clock
from mulligan.core.job import Job, Lane, NewJob
from mulligan.core.schedule import Schedule
from mulligan.sim.account import Account, Ending, Numbers, Term
from mulligan.sim.plan import FAIR
from mulligan.sim.process import Process
from mulligan.sim.safety import ROW_CHECKS

LAST_EVENTS = 30  # kept of each job, for the report of a violation
WORLD_EVENTS = 40  # and of the world
OBEY_S = 0.5  # for a handler that obeys, from being told to stop to its end
UNSHAKEN = frozenset({"S1", "S3", "S4", "S5", "S6", "S7"})  # S23: what holds however the store's clock was moved


class Broken(Exception):
    """An invariant does not hold."""

    def __init__(self, rule: str, told: str, account: Account | None = None) -> None:
        super().__init__(f"{rule}: {told}")
        self.rule = rule
        self.told = told
        self.account = account


class Watch:
    """The ledger of one world."""

    def __init__(self, clock: Clock, time_s: Callable[[], float], policies: Mapping[str, Numbers]) -> None:
        self._clock = clock
        self._time_s = time_s
        self._policies = policies
        self.rows: Mapping[str, Job] = {}  # the store's own, live
        self.accounts: dict[str, Account] = {}
        self.pruned: list[Account] = []
        self._seen: dict[str, Job] = {}
        self.paused: set[str] = set()
        self.schedules: dict[str, Schedule] = {}
        self.ticks: dict[tuple[str, int], int] = {}  # jobs made of each
        self.claims: dict[str, list[tuple[Account, int]]] = {}  # by claim id: what it took, under which fences
        self.open_claims: dict[int, str] = {}  # by process: the claim whose answer it has not heard
        self.fair_starts: list[tuple[Lane, bool]] = []  # in the queue of that probe: the lane, and whether both waited when it was claimed
        self.levels: dict[str, tuple[int, int]] = {}  # tokens of each bucket, and when
        self.checks: Counter[str] = Counter()
        self.events: Counter[str] = Counter()
        self.recent: deque[str] = deque(maxlen=WORLD_EVENTS)
        self.stepped_s = -1.0  # when the store's clock was last moved; before all times while it was not
        self.broken: Broken | None = None
        self.on_broken: Callable[[], None] = lambda: None
        self._hash = hashlib.blake2b(digest_size=16)

    # -- Talking ------------------------------------------------------------------------------------------------------

    def now_us(self) -> int:
        return self._clock.now_us()

    def time_s(self) -> float:
        return self._time_s()

    def stepped_since(self, time_s: float) -> bool:
        """Whether the store's clock was moved at that time or later."""
        return self.stepped_s >= time_s

    def fail(self, rule: str, told: str, account: Account | None = None) -> None:
        """The first violation counts: what follows from it may be its consequence only."""
        if self.broken is None:
            self.broken = Broken(rule, told, account)
            self.on_broken()
        raise self.broken

    def check(self, rule: str, problem: str, account: Account | None = None) -> None:
        """Counts one check; a problem is a violation. Whoever is excused by a step of the clock is not checked, and not counted."""
        self.checks[rule] += 1
        if rule in UNSHAKEN and self.stepped_s >= 0:
            self.checks["S23"] += 1
        if problem:
            self.fail(rule, problem, account)

    def note(self, words: str, account: Account | None = None) -> None:
        """One event, for the hash and for people. Nothing in it may differ between two runs of a seed: no ids, no host, no process id."""
        line = f"{self._time_s():.6f} {words}" if account is None else f"{self._time_s():.6f} #{account.number} {words}"
        self._hash.update(line.encode())
        self.recent.append(line)
        if account is not None:
            account.trace.append(line)
            if len(account.trace) > LAST_EVENTS:
                del account.trace[0]

    def digest(self) -> str:
        """The hash of all events so far, in their order."""
        return self._hash.hexdigest()

    # -- Accounts -----------------------------------------------------------------------------------------------------

    def open_account(self, new: NewJob, now_us: int) -> Account:
        """A job that is stored now."""
        account = Account(len(self.accounts) + len(self.pruned), new, self._policies[new.policy], now_us)
        self.accounts[new.id] = account
        return account

    def owner_of(self, queue: str, key: str | None) -> Account | None:
        """The live job that has a unique key."""
        if key is None:
            return None
        return next((one for one in self.accounts.values() if one.is_live and one.new.unique_key == key and one.new.queue == queue), None)

    def row_changes(self) -> None:
        """Compares every row that was written since the last look with its account, and finds rows that came or went unasked."""
        seen, rows = self._seen, self.rows
        if len(rows) != len(self.accounts):
            self._find_strangers()
        for job_id, row in rows.items():
            before = seen.get(job_id)
            if before is row:
                continue
            account = self.accounts.get(job_id)
            if account is None:
                self.fail("S9", f"a job is stored that nobody enqueued: {row.task} in {row.queue}")
                return
            for rule, function in ROW_CHECKS:
                self.check(rule, function(before, row, account), account)
            account.records_seen = account.records
            seen[job_id] = row
        self.checks["S9"] += 1

    def _find_strangers(self) -> None:
        for job_id, account in self.accounts.items():
            if job_id not in self.rows:
                self.fail("S9", f"it is gone; it was {account.status}", account)
        for job_id in self.rows:
            if job_id not in self.accounts:
                self.fail("S9", f"a job is stored that nobody enqueued, or twice: {self.rows[job_id].task} in {self.rows[job_id].queue}")

    def must_change(self, account: Account) -> None:
        """A write that was answered as done must be seen in the row; a row that was not touched is not looked at otherwise."""
        row = self.rows.get(account.new.id)
        if row is not None and self._seen.get(account.new.id) is row:
            for rule, function in ROW_CHECKS:
                self.check(rule, function(row, row, account), account)

    def forget(self, account: Account) -> None:
        """A job was pruned."""
        del self.accounts[account.new.id]
        self._seen.pop(account.new.id, None)
        self.pruned.append(account)

    # -- Handlers -----------------------------------------------------------------------------------------------------

    def starts(self, job: Job, process: Process) -> Account:
        """A handler begins."""
        self.events["start"] += 1
        account = self.accounts.get(job.id)
        if account is None:
            self.check("S9", f"a handler runs for a job that is not stored: {job.task}")
            raise AssertionError
        self.note(f"start fence {job.fence} in process {process.number}", account)
        self._may_start(account, job, process)
        account.started[job.fence] = self._time_s()
        if account.new.queue == FAIR:
            self.fair_starts.append((account.lane, account.both_waited))
        return account

    def _may_start(self, account: Account, job: Job, process: Process) -> None:
        """One start for each claim, by who was given the job, and while the lease lasts.

        A step of the store's clock may end a lease that its holder counts on; nobody can promise then that it does not start. That excuses
        those whose lease was written before the step, and nobody else.
        """
        term = account.terms.get(job.fence)
        if term is None:
            self.fail("S2", f"it starts under fence {job.fence}, which was never given", account)
            return
        self.check("S6", f"two starts under fence {job.fence}" if job.fence in account.started else "", account)
        self.check("S2", _belief(account, job, process, self.now_us()), account)
        if not self.stepped_since(term.written_s):
            self.check("S6", _rerun(account, job), account)
            self.check("S20", "it starts after its cancel was confirmed" if account.status == "cancelled" else "", account)
            self.check("S2", _unheld(account, job, self.now_us()), account)
        if not self.stepped_since(term.claimed_s):
            self.check("S7", _overage(account, term), account)

    def ends(self, account: Account, fence: int, ending: Ending, process: Process, *, obeys: bool) -> None:
        """A handler has ended."""
        now_s = self._time_s()
        if obeys and process.stood_s < account.started[fence]:
            self.check("L4", _overtime(account, now_s - account.started[fence]), account)
            lost_s = process.lost.get((account.number, fence), now_s)
            self.check(
                "S2", f"it ran on for {now_s - lost_s:.3f} s after its holder had lost it" if now_s - lost_s > OBEY_S else "", account
            )
        account.ended_s[fence] = now_s
        self.events["end"] += 1
        self.note(f"end fence {fence}: {ending.kind}", account)
        account.ended[fence] = ending

    def claimed_of(self, claim_id: str) -> Sequence[tuple[Account, int]]:
        return self.claims.get(claim_id, ())

    def saw(self, call: str, words: str) -> None:
        """Counts a step of the store and notes it."""
        self.events[call] += 1
        self.note(f"{call} {words}" if words else call)


def _overtime(account: Account, ran_s: float) -> str:
    """A time-out ends a handler that obeys."""
    limit_us = account.new.timeout_us
    return (
        f"it ran {ran_s:.3f} s, and its time-out is {limit_us / 1e6:g} s"
        if limit_us is not None and ran_s > limit_us / 1e6 + OBEY_S
        else ""
    )


def _rerun(account: Account, job: Job) -> str:
    """No start after success in the same generation."""
    return "it starts again after its success was stored" if account.status == "done" and account.generation == job.generation else ""


def _overage(account: Account, term: Term) -> str:
    """What had its maximum age when it was claimed is not run: whoever has heard of the claim has heard that time, too."""
    return "it starts, and it was too old when it was claimed" if account.is_too_old(term.claimed_us) else ""


def _belief(account: Account, job: Job, process: Process, now_us: int) -> str:
    """Who starts a job was given it, and was not told that it is lost."""
    if account.fence != job.fence or account.status != "processing":
        return ""
    if account.holder is not process:
        return f"process {process.number} starts it, and it was given to another one"
    return "it starts though its holder was told that it has lost it" if now_us < account.lease_us and account.told_lost else ""


def _unheld(account: Account, job: Job, now_us: int) -> str:
    """Who starts a job has its lease in hand, at that moment: between the last look at it and the call nothing can come here."""
    if account.status != "processing" or account.fence != job.fence:
        return f"it starts under fence {job.fence}, and it is {account.status} under fence {account.fence}"
    late_us = now_us - account.lease_us
    return f"it starts {late_us / SECOND_US:.6f} s after its lease has ended" if late_us >= 0 else ""
