"""The way of receipts to the store and back: repeated while the store is away, and refused to a run that lost its lease."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from mulligan.core.change import Grip
from mulligan.core.contract import Store
from mulligan.core.errors import BadPayload, Fail, LeaseLost, StoreError
from mulligan.core.events import Event
from mulligan.core.job import Job
from mulligan.core.receipt import Receipt
from mulligan.observe.bus import EventBus
from mulligan.worker.health import StoreHealth

if TYPE_CHECKING:  # a run knows its context, which knows its steps, which come here
    from mulligan.worker.run import Holdings, Run

T = TypeVar("T")


class LostLeases:
    """Tells the runs of one worker that a store's answer shows to be stale: nothing more of them is written."""

    def __init__(self, holdings: Holdings, bus: EventBus, now_us: Callable[[], int], worker: str) -> None:
        self._holdings = holdings
        self._bus = bus
        self._now_us = now_us
        self._worker = worker

    def lose(self, job: Job, reason: str) -> None:
        """Stops the run of this claim as one whose lease is lost. May be called by the run itself."""
        run = self._holdings.find(job.id, job.fence)
        if run is None or not run.in_handler or run.stop == "lost":
            return  # it has ended, and its own verdict will tell; or it knows
        already_told = run.stop is not None
        run.stop = "lost"
        if run.context is not None:
            run.context.mark_cancelled()
        if not already_told:
            # Not at once: a task that cancels itself hears of it wherever it waits next, which may be after this run.
            asyncio.get_running_loop().call_soon(_cancel, run)
        self.tell(job, reason)

    def tell(self, job: Job, reason: str) -> None:
        """Says that a claim of this worker is another's now."""
        event = Event(kind="LEASE_LOST", at_us=self._now_us(), job_id=job.id, queue=job.queue, task=job.task, worker=self._worker,
                      fence=job.fence, attempt=job.attempts, detail={"reason": reason})  # fmt: skip
        self._bus.publish([event])


def _cancel(run: Run) -> None:
    if run.in_handler and run.slot is not None:
        run.slot.cancel()


class ReceiptBook:
    """Reads and writes receipts, for all runs of one worker, or for one lease held by hand: then there is no health and no patience."""

    def __init__(self, store: Store, health: StoreHealth | None = None, lost: LostLeases | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        self._store = store
        self._health = health
        self._lost = lost

    async def read(self, job: Job) -> dict[str, Receipt]:
        """All receipts of a job, by name."""
        [found] = await self._patiently(lambda: self._store.receipts([job.id]))
        return {receipt.name: receipt for receipt in found}

    async def put(self, job: Job, name: str, value_json: str | None) -> Receipt | None:
        """Stores a receipt under the claim of this job; None if that does not hold any more: then `refused` must follow."""
        grip = Grip(job.id, job.fence)
        return await self._patiently(lambda: self._store.put_receipt(grip, name, value_json))

    def refused(self, job: Job, name: str) -> LeaseLost:
        """Stops the run whose receipt was refused; the error to be raised in it."""
        reason = f"the receipt of step {name!r} was refused"
        if self._lost is not None:
            self._lost.lose(job, reason)
        return LeaseLost(f"{reason}: job {job.id} is no longer held under fence {job.fence}, another may be running it now")

    def unusable(self, problem: BadPayload | StoreError) -> Exception:
        """What a handler is told of a receipt that cannot be stored, or read. Its work is done, so a retry would only repeat it."""
        return problem if self._health is None else Fail(str(problem), code="bad_receipt")

    async def _patiently(self, call: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                answer = await call()
            except StoreError as error:
                if self._health is None or not error.retryable:
                    raise
                await self._health.failed(error)
                continue
            if self._health is not None:
                self._health.ok()
            return answer
