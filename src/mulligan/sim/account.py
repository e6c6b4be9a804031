"""Account: what an observer outside the store knows of one job: what was asked, claimed, run, settled. Never read back from the store."""

from __future__ import annotations

from typing import Literal

import msgspec

from mulligan.core.job import ErrorInfo, Lane, NewJob, Status
from mulligan.core.limits import Limit
from mulligan.sim.process import Process

EndKind = Literal["ok", "error", "fail", "retry", "snooze", "cancel", "told", "bad result"]


class Numbers(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of a retry policy, as the plan of a world chose them; the store and the policy's own code are not asked."""

    text: str  # as it is stored with a job
    max_retries: int | None
    base_s: float
    factor: float
    cap_s: float
    jitter: str
    max_crashes: int
    max_snoozes: int
    retry_after_s: float

    def longest_us(self, n: int) -> int:
        """The longest wait after the n-th failure."""
        return round(min(self.cap_s, self.base_s * self.factor ** (n - 1)) * 1_000_000)


class Ending(msgspec.Struct, frozen=True):
    """How a handler ended: what it returned or raised."""

    kind: EndKind
    seconds: float = 0.0  # what it asked for
    result_json: str | None = None


class Term(msgspec.Struct):
    """One claim of a job, under a fence of its own: when it was carried out, and when its lease was last written."""

    claimed_s: float  # on the world's own clock
    claimed_us: int  # on the store's
    written_s: float  # by the claim, or by its last renewal


class Account:
    """One job, counted from outside."""

    def __init__(self, number: int, new: NewJob, numbers: Numbers, now_us: int) -> None:
        self.number = number
        self.new = new
        self.numbers = numbers
        self.status: Status = "pending"
        self.lane: Lane = "fresh"
        self.run_at_us: int | None = new.eta_us if new.eta_us is not None else now_us + new.delay_us
        self.due_first_us = self.due_us = self.run_at_us or 0
        self.fence = 0
        self.generation = 1
        self.attempts = self.failures = self.crashes = self.snoozes = self.releases = 0
        self.records = 0  # in its history, ever
        self.records_seen = 0  # of them, when its row was last looked at
        self.cancel_requested = False
        self.finished_us: int | None = None
        self.result_json: str | None = None
        # The claim that holds it, or held it last.
        self.claim_id: str | None = None
        self.owner = ""
        self.holder: Process | None = None
        self.lease_us = 0  # its end on the store's clock
        self.terms: dict[int, Term] = {}  # by fence: who has lost a job may still believe in the term it had
        self.limits: tuple[Limit, ...] = ()  # it was claimed under
        self.slotted = False
        self.both_waited = False  # when it was claimed, jobs of both lanes waited, and still do
        self.told_lost = False  # the holder was told that it does not hold it any more
        self.heard = False  # the answer to the claim has reached the holder
        self.settle_id: str | None = None  # of the last settlement
        self.last_error: ErrorInfo | None = None
        # What its handlers did.
        self.started: dict[int, float] = {}  # by fence: when, on the world's own clock
        self.ended: dict[int, Ending] = {}
        self.ended_s: dict[int, float] = {}
        self.deaths = 0  # of processes, by its own doing, in this generation
        self.lapses = 0  # in this generation
        self.cancelled_s = float("inf")  # when the holder was first asked to stop
        self.trace: list[str] = []  # its last events, in words

    @property
    def is_live(self) -> bool:
        return self.status in ("pending", "processing")

    @property
    def term(self) -> Term:
        """Of the claim that holds it, or held it last."""
        return self.terms[self.fence]

    def counters(self) -> tuple[int, ...]:
        """The five counters and the generation."""
        return (self.attempts, self.failures, self.crashes, self.snoozes, self.releases, self.generation)

    def is_too_old(self, at_us: int) -> bool:
        """Whether it has its maximum age by then. Exactly at it a job is too old: it is not to be run any more."""
        return self.new.max_age_us is not None and at_us >= self.due_first_us + self.new.max_age_us

    def holds(self, now_us: int) -> bool:
        """Whether somebody has it under a lease that has not ended."""
        return self.status == "processing" and self.lease_us > now_us
