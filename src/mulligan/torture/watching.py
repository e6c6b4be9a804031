"""Stands between a process and its store, and notes in the ledger what was asked and what the store has said.

What is asked is noted before the call and the answer after it, so that a process killed in between leaves an open question, never a
wrong statement.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from mulligan.core.change import Change, Dead, Grip, Lapsed, Verdict
from mulligan.core.contract import Ask, CancelAnswer, Claimed, Inserted, Near, Renewal, Store, WorkerInfo
from mulligan.core.job import NewJob
from mulligan.torture.ledger import Ledger, mono_us
from mulligan.torture.plan import AHEAD
from mulligan.worker.child import Child, HeldJob
from mulligan.worker.deaths import NO_QUEUE
from mulligan.worker.link import Holding
from mulligan.worker.solo_line import SoloLine

Claim = Callable[[str, str, Sequence[Ask], int, int], Awaitable[Claimed]]
Settle = Callable[[Sequence[Change]], Awaitable[list[Verdict]]]


class Watched:
    """Wraps the calls of one store that matter to the checker, and those of its near side."""

    def __init__(self, store: Store, ledger: Ledger) -> None:
        self._ledger = ledger
        watched: Any = store
        self._insert, self._renew, self._cancel, self._near = store.insert, store.renew, store.request_cancel, store.near
        watched.insert, watched.renew, watched.request_cancel, watched.near = self.insert, self.renew, self.request_cancel, self.near
        watched.claim, watched.settle = self._claiming(store.claim), self._settling(store.settle)

    async def near(self) -> Near | None:
        """The near side, watched as well."""
        near: Any = await self._near()
        if near is not None:
            near.claim, near.settle = self._claiming(near.claim), self._settling(near.settle)
        return near  # type: ignore[no-any-return]

    async def insert(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        """ENQ_TRY, then ENQ_OK or ENQ_ERR, which means that nobody knows."""
        note = self._ledger.note
        for job in jobs:
            note("ENQ_TRY", job=job.id)
        sent = mono_us()
        try:
            answers = await self._insert(jobs)
        except BaseException:
            for job in jobs:
                note("ENQ_ERR", job=job.id)
            raise
        for job, answer in zip(jobs, answers, strict=True):
            due = job.eta_us if job.eta_us is not None else answer.at_us + job.delay_us
            note("ENQ_OK", job=answer.id, sent=sent, store=answer.at_us, due=due)
        return answers

    def _claiming(self, claim: Claim) -> Claim:
        """CLAIM for each job; FOUND if an earlier claim is looked for; IDLE if slots stay free, EMPTY if that is not certain."""
        note = self._ledger.note

        async def watched(claim_id: str, owner: str, asks: Sequence[Ask], total: int, lease_us: int) -> Claimed:
            sent = mono_us()
            claimed = await claim(claim_id, owner, asks, total, lease_us)
            at = mono_us()
            kind = "FOUND" if all(ask.queue == NO_QUEUE for ask in asks) else "CLAIM"
            for job in claimed.jobs:
                facts = {"attempt": job.attempts, "gen": job.generation, "until": job.lease_expires_at_us or 0, "due": job.due_us}
                note(kind, at=at, job=job.id, fence=job.fence, sent=sent, store=job.updated_at_us, id=job.claim_id or claim_id, **facts)
            if total - len(claimed.jobs) > AHEAD:  # so that a slot is free for certain
                note("IDLE", at=at, sent=sent, store=claimed.now_us)
            elif not claimed.jobs and kind == "CLAIM":
                note("EMPTY", at=at, sent=sent, store=claimed.now_us)
            return claimed

        return watched

    def _settling(self, settle: Settle) -> Settle:
        """SETTLE_TRY, then SETTLE_OK, SETTLE_STALE or SETTLE_ERR; REQUEUE in the place of SETTLE_OK where an operator sent it back."""
        note = self._ledger.note

        async def watched(changes: Sequence[Change]) -> list[Verdict]:
            facts = [_facts(change) for change in changes]
            for fact in facts:
                note("SETTLE_TRY", **fact)
            sent = mono_us()
            try:
                verdicts = await settle(changes)
            except BaseException:
                for fact in facts:
                    note("SETTLE_ERR", **fact)
                raise
            for fact, verdict in zip(facts, verdicts, strict=True):
                if not verdict.applied:
                    note("SETTLE_STALE", sent=sent, store=verdict.at_us, **fact)
                    continue
                kind = "REQUEUE" if fact["guard"] == "dead" else "SETTLE_OK"
                fact["status"] = verdict.status or ""
                note(kind, sent=sent, store=verdict.at_us, due=verdict.run_at_us or 0, **fact)
            return verdicts

        return watched

    async def renew(self, grips: Sequence[Grip], lease_us: int, worker: WorkerInfo | None = None) -> list[Renewal]:
        """RENEW_TRY, then RENEW, with whether the job is still held."""
        for grip in grips:
            self._ledger.note("RENEW_TRY", job=grip.job_id, fence=grip.fence)
        sent = mono_us()
        answers = await self._renew(grips, lease_us, worker)
        for answer in answers:
            self._ledger.note("RENEW", job=answer.job_id, fence=answer.fence, sent=sent, ok=answer.held)
        return answers

    async def request_cancel(self, ids: Sequence[str]) -> list[CancelAnswer]:
        """CANCEL_TRY, then CANCEL with the answer."""
        for job_id in ids:
            self._ledger.note("CANCEL_TRY", job=job_id)
        answers = await self._cancel(ids)
        for job_id, answer in zip(ids, answers, strict=True):
            self._ledger.note("CANCEL", job=job_id, how=answer)
        return answers


def watch_supervisor(ledger: Ledger) -> None:
    """ALONE for each job that a supervisor takes over from a child, to be run alone; ENDING for each child that it kills.

    Neither is a call of the store, and there is no event for them, so the two methods are wrapped in the class, in this process.
    """
    add, kill = SoloLine.add, Child.kill

    def adding(line: SoloLine, jobs: Sequence[Holding], owner: str) -> None:
        add(line, jobs, owner)
        waiting = set(line.grips())  # what finds the line full is given back
        for job in jobs:
            if Grip(job.job_id, job.fence) in waiting:
                ledger.note("ALONE", job=job.job_id, fence=job.fence)

    def killing(child: Child, culprits: Sequence[HeldJob] = ()) -> None:
        ledger.note("ENDING", pids=(child.pid,))
        kill(child, culprits)

    wrapped: Any = SoloLine
    wrapped.add = adding
    wrapped = Child
    wrapped.kill = killing


def _facts(change: Change) -> dict[str, Any]:
    """What a settle asks for."""
    guard = change.guard
    facts = {"job": change.job_id, "id": change.settle_id, "cause": change.cause, "status": change.status, "gen": change.generation}
    if isinstance(guard, Dead):
        return {**facts, "guard": "dead"}
    return {**facts, "guard": "lapsed" if isinstance(guard, Lapsed) else "held", "fence": guard.fence}
