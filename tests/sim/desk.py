"""A watch with one job on it, to which bad histories can be told by hand."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from mulligan.core.clock import ManualClock
from mulligan.core.contract import Ask, Claimed, Inserted
from mulligan.core.job import Job, NewJob, first_row
from mulligan.core.limits import Limit
from mulligan.sim.account import Account, Numbers
from mulligan.sim.claims import saw_claim
from mulligan.sim.filing import saw_insert
from mulligan.sim.process import Process
from mulligan.sim.watch import Watch

LEASE_US = 10_000_000
NUMBERS = Numbers(
    text="{}", max_retries=3, base_s=1.0, factor=2.0, cap_s=10.0, jitter="full", max_crashes=3, max_snoozes=2, retry_after_s=60.0
)


class Desk:
    """Plays the store, honestly unless it is told otherwise."""

    def __init__(self, numbers: Numbers = NUMBERS) -> None:
        self.clock = ManualClock()
        self.rows: dict[str, Job] = {}
        self._stepped_us = 0
        self.watch = Watch(self.clock, lambda: (self.clock.now_us() - self._stepped_us) / 1e6, {numbers.text: numbers})
        self.watch.rows = self.rows
        self.process = Process(0)
        self.other = Process(1)
        self._claims = 0

    def step(self, seconds: float) -> None:
        """Moves the store's clock, a moment after what was done last."""
        self.clock.advance(0.001)
        self.clock.advance(seconds)
        self._stepped_us += round(seconds * 1e6)
        self.watch.stepped_s = self.watch.time_s()
        self.clock.advance(0.001)

    def insert(self, **fields: Any) -> Account:
        """One job, stored and told."""
        number = len(self.rows)
        new = NewJob(**{
            "id": f"job{number:04}", "queue": "one", "task": "work", "payload": "{}", "policy": "{}", "max_retries": 3, **fields
        })  # fmt: skip
        self.rows[new.id] = first_row(new, self.clock.now_us())
        saw_insert(self.watch, [new], answer=[Inserted(id=new.id, created=True, at_us=0)])
        self.watch.row_changes()
        return self.watch.accounts[new.id]

    def claim(
        self, *accounts: Account, process: Process | None = None, look: bool = True, limits: tuple[Limit, ...] = (), **wrong: Any
    ) -> str:
        """A claim that takes these jobs; the rows are written as they should be, except for the fields given."""
        self._claims += 1
        claim_id, now_us = f"claim{self._claims}", self.clock.now_us()
        taken = []
        for account in accounts:
            row = self.rows[account.new.id]
            fields = {"status": "processing", "run_at_us": None, "fence": row.fence + 1, "attempts": row.attempts + 1, "claim_id": claim_id,
                      "lease_owner": "w", "lease_expires_at_us": now_us + LEASE_US, "updated_at_us": now_us, **wrong}  # fmt: skip
            self.rows[row.id] = replace(row, **fields)
            taken.append(self.rows[row.id])
        answer = Claimed(jobs=taken, now_us=now_us, next_due_us=None)
        asks = [Ask(queue="one", lane=lane, priority=0, guaranteed=9, limits=limits) for lane in ("fresh", "retry")]
        saw_claim(self.watch, claim_id, "w", asks, 9, LEASE_US, answer=answer, process=process or self.process)
        if look:
            self.watch.row_changes()
        return claim_id
