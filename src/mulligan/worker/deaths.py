"""Deaths: what becomes of the jobs of a child process that has ended. Settled at once, by the policy, like every other outcome.

The process is dead, so none of its code runs any more, and everything may be settled under the fence it held. What had started is charged
a crash, unless we ended the process ourselves: then only the job is charged for whose sake that was done. What had not started is given
back uncounted, and so is what a claim took whose answer was never heard.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, NamedTuple, TypeVar

from mulligan.core.change import Change, Verdict
from mulligan.core.clock import SECOND_US
from mulligan.core.contract import Ask, Signals, Store
from mulligan.core.errors import StoreError
from mulligan.core.events import Event, events_of
from mulligan.core.ids import new_id
from mulligan.core.job import Job
from mulligan.core.outcome import CancelObeyed, LeaseLost, Outcome, Released
from mulligan.observe.bus import EventBus
from mulligan.policy.classify import classify
from mulligan.policy.decide import decide
from mulligan.worker.cells import monotonic_us
from mulligan.worker.child import Child, HeldJob, how_it_ended
from mulligan.worker.policies import Policies

log = logging.getLogger("mulligan.supervisor")
T = TypeVar("T")
Kind = Literal["crash", "timeout", "cancel", "release"]
BATCH_MAX = 200
WAIT_MIN_S, WAIT_MAX_S = 0.05, 1.0
CLAIM_LOOKS_S = (0.0, 0.1, 0.2, 0.5)  # a claim of a killed child may still be under way in the store: pauses before each look for it
NO_QUEUE = "(none)"  # no queue can have this name, so a claim in it finds nothing new


class Loss(NamedTuple):
    """One job of a dead child, and what is to become of it."""

    job_id: str
    fence: int
    kind: Kind
    reason: str
    started_us: int | None = None  # on the clock of the cells
    delay_us: int = 0


async def still_held(store: Store, claim_id: str, owner: str, lease_us: int = 1) -> list[Job]:
    """The jobs that are held under a claim whose answer nobody has heard. Claims nothing of its own; where a claim is carried out in
    steps, what it had begun is finished, under a lease of this length."""
    nothing = Ask(queue=NO_QUEUE, lane="fresh", priority=0, guaranteed=1)
    return (await store.claim(claim_id, owner, (nothing,), 1, lease_us)).jobs


def losses_of(child: Child) -> list[Loss]:
    """What the end of a child means for each job it held."""
    how = how_it_ended(child.ended.result())
    losses = []
    for job in child.held.values():
        since_us = abs(child.cells[job.cell])
        kind, reason = _judge(child, job, how, has_started=since_us > 0)
        if job.wish != "lost":
            losses.append(Loss(job.job_id, job.fence, kind, reason, since_us or None))
    return losses


def _judge(child: Child, job: HeldJob, how: str, *, has_started: bool) -> tuple[Kind, str]:
    if not has_started:
        return "release", f"its process ended with {how} before it started"
    if (job.job_id, job.fence) in child.culprits:
        return ("cancel", "cancelled while it ran; it did not stop, so its process was ended") if job.wish else ("timeout", "")
    if child.was_killed:
        return "release", "its process was ended by its supervisor, for no fault of this job"
    if child.is_leaving:
        return "release", "the worker shut down"
    return "crash", f"its process died of {how}" if child.ended.result() < 0 else f"its process ended with {how}"


class Deaths:
    """Settles losses. `give_up` ends its patience with a store that does not answer."""

    def __init__(self, store: Store, policies: Policies, bus: EventBus, rng: random.Random) -> None:
        self._store = store
        self._policies = policies
        self._bus = bus
        self._rng = rng
        self.give_up = asyncio.Event()

    async def settle(self, losses: Sequence[Loss], owner: str) -> int:
        """Settles those that are still held; how many they were."""
        settled = 0
        for start in range(0, len(losses), BATCH_MAX):
            batch = {loss.job_id: loss for loss in losses[start : start + BATCH_MAX]}
            found = await self._patiently(functools.partial(self._store.get, list(batch)))
            jobs = [job for job in found or () if job is not None and job.status == "processing" and job.fence == batch[job.id].fence]
            settled += await self._write([self._change(job, batch[job.id], owner) for job in jobs])
        return settled

    async def settle_unheard(self, claim_id: str, owner: str, *, is_patient: bool) -> int:
        """Gives back what a claim took whose answer was never heard."""
        settled = 0
        for pause_s in CLAIM_LOOKS_S if is_patient else CLAIM_LOOKS_S[:1]:
            await asyncio.sleep(pause_s)
            jobs = await self._patiently(lambda: still_held(self._store, claim_id, owner)) or []
            reason = "its process ended before it started"
            settled += await self._write([self._change(job, Loss(job.id, job.fence, "release", reason), owner) for job in jobs])
        return settled

    def _change(self, job: Job, loss: Loss, owner: str) -> Change:
        started_at_us = None if loss.started_us is None else job.read_at_us - (monotonic_us() - loss.started_us)
        return decide(
            job,
            self._outcome(job, loss),
            self._policies.for_job(job),
            Signals(now_us=job.read_at_us),
            self._rng,
            settle_id=new_id(job.read_at_us),
            worker=owner,
            started_at_us=started_at_us,
        )

    def _outcome(self, job: Job, loss: Loss) -> Outcome:
        if loss.kind == "crash":
            return LeaseLost(loss.reason, lapsed=False)
        if loss.kind == "timeout":
            after_s = (job.timeout_us or 0) / SECOND_US
            error = TimeoutError(f"timed out after {after_s:g} s; it did not stop, so its process was ended")
            return classify(error, self._policies.for_job(job), job.read_at_us, timed_out=True)
        if loss.kind == "cancel":
            return CancelObeyed(loss.reason)
        return Released(loss.reason, loss.delay_us)

    async def _write(self, changes: Sequence[Change]) -> int:
        if not changes:
            return 0
        verdicts = await self._patiently(lambda: self._store.settle(changes))
        if verdicts is None:
            if len(changes) == 1 or self.give_up.is_set():
                return 0
            return sum([await self._write([change]) for change in changes])
        return self._publish(changes, verdicts)

    def _publish(self, changes: Sequence[Change], verdicts: Sequence[Verdict]) -> int:
        events: list[Event] = []
        applied = 0
        for change, verdict in zip(changes, verdicts, strict=True):
            if verdict.applied:  # else the child's own last write, or another's, was first
                applied += 1
                events += events_of(change, verdict)
        self._bus.publish(events)
        return applied

    async def _patiently(self, call: Callable[[], Awaitable[T]]) -> T | None:
        """The answer, however long the store takes to give it; None if it refuses, or nobody waits any longer."""
        wait_s = WAIT_MIN_S
        while True:
            try:
                return await call()
            except StoreError as error:
                if not error.retryable or self.give_up.is_set():
                    log.error("jobs of a dead process cannot be settled; they go back when their leases run out: %s", error)
                    return None
                log.warning("settling the jobs of a dead process failed, trying again: %s", error)
            try:
                await asyncio.wait_for(self.give_up.wait(), self._rng.uniform(WAIT_MIN_S, wait_s))
            except TimeoutError:
                wait_s = min(WAIT_MAX_S, wait_s * 2)
