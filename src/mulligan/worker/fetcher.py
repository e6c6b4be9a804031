"""The fetcher: keeps the slots filled. It claims what fits, hands it to the executor in fair order, and sleeps when nothing is due.

How much it claims. Free slots, always. Beyond them only what will have started by the time the next claim could answer:
the pace of the last round times the length of a claim. For long jobs that is nothing, so that order, shutdown and leases stay exact;
for short ones it keeps the slots busy while the claim is under way.

How it sleeps. Until a hint comes, or the next pending job falls due, or the poll interval is over, whichever is first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from mulligan.core.clock import SECOND_US
from mulligan.core.contract import Claimed, Listener, Near, Store
from mulligan.core.errors import StoreError
from mulligan.core.events import Event
from mulligan.core.ids import new_id
from mulligan.core.job import Job
from mulligan.observe.bus import EventBus
from mulligan.policy.planner import LanePlanner
from mulligan.worker.executor import Executor
from mulligan.worker.health import StoreHealth
from mulligan.worker.settings import WorkerSettings
from mulligan.worker.store_time import StoreTime

log = logging.getLogger("mulligan.fetcher")
AHEAD_CLAIMS = 4  # reach so many lengths of a claim ahead: half of it is under way in one claim while the other half is worked on
SMOOTHING = 0.3  # weight of the newest claim in the running average of its length
WAKE_EARLY_S = 0.0005  # a timer may fire a little early; asking again costs less than sleeping a whole poll


class Fetcher:
    """One loop. `progress` is called whenever the executor moves on."""

    def __init__(
        self,
        store: Store,
        near: Near,
        executor: Executor,
        planner: LanePlanner,
        bus: EventBus,
        health: StoreHealth,
        time: StoreTime,
        settings: WorkerSettings,
        worker: str,
    ) -> None:
        self._store = store
        self._near = near
        self._executor = executor
        self._planner = planner
        self._bus = bus
        self._health = health
        self._time = time
        self._settings = settings
        self._worker = worker
        self._progress: asyncio.Future[None] | None = None
        self._listener: Listener | None = None
        self._claim_s = 0.0  # running average of a claim's length
        self._ahead = 0
        self._stopping = False
        self._task: asyncio.Task[None] | None = None
        self.asleep = False  # waiting for work: nothing was due at the last look
        self.on_empty: Callable[[], None] = lambda: None  # told before each sleep

    def progress(self) -> None:
        """Something changed in the executor: there may be room now."""
        if self._progress is not None and not self._progress.done():
            self._progress.set_result(None)

    def stop(self) -> None:
        """Ends the loop: at once while it waits, after its answer while a claim is under way, so that no claimed job is forgotten."""
        self._stopping = True
        self.progress()
        if self.asleep and self._task is not None:
            self._task.cancel()

    async def run(self) -> None:
        """The loop; ends after `stop`."""
        self._task = asyncio.current_task()
        self._listener = self._store.listen()
        try:
            while not self._stopping:
                wanted = self._wanted()
                if wanted <= 0:
                    self._progress = asyncio.get_running_loop().create_future()
                    await self._progress
                    continue
                claimed = await self._claim(wanted)
                if claimed is None:
                    return
                if claimed.jobs:
                    self._start(claimed)
                if len(claimed.jobs) < wanted and not self._stopping:
                    await self._sleep(claimed)
        finally:
            self._listener.close()

    def _wanted(self) -> int:
        executor = self._executor
        wanted = executor.room + self._ahead
        if executor.room > 0 or wanted > self._ahead // 2:
            return wanted
        return 0

    async def _claim(self, wanted: int) -> Claimed | None:
        """One claim, repeated under the same claim id until the store has answered, so that no answer is lost."""
        loop = asyncio.get_running_loop()
        claim_id = new_id(self._time.now_us())
        began_s, began_with = loop.time(), self._executor.accepted
        while True:
            try:
                asks = self._planner.asks(wanted)
                claimed = await self._near.claim(claim_id, self._worker, asks, wanted, self._settings.lease_us)
                break
            except StoreError as error:
                if not error.retryable:
                    log.error("claiming failed: %s", error)
                if self._stopping:
                    return None  # what an unheard answer may have claimed goes back when its lease runs out
                await self._health.failed(error)
        self._health.ok()
        self._time.set(claimed.now_us)
        self._pace(loop.time() - began_s, self._executor.accepted - began_with, full=len(claimed.jobs) == wanted)
        return claimed

    def _pace(self, took_s: float, finished: int, *, full: bool) -> None:
        """Sets how far the next claim may reach beyond the free slots."""
        self._claim_s = took_s if self._claim_s == 0 else self._claim_s + SMOOTHING * (took_s - self._claim_s)
        if not full or finished == 0 or took_s <= 0:
            # Nothing more is due, or jobs outlast a claim: no reason to hold jobs that cannot start.
            self._ahead = self._ahead // 2 if full else 0
            return
        pace = finished / took_s
        self._ahead = min(self._settings.ahead, int(AHEAD_CLAIMS * pace * self._claim_s))

    def _start(self, claimed: Claimed) -> None:
        jobs = self._planner.interleave(claimed.jobs)
        self._tell_claimed(jobs, claimed.now_us)
        self._executor.accept(jobs)

    def _tell_claimed(self, jobs: list[Job], now_us: int) -> None:
        batch = {"jobs": len(jobs), "claim_id": jobs[0].claim_id}
        self._bus.publish([Event(kind="CLAIM_START", at_us=now_us, worker=self._worker, detail=batch)])
        worker = self._worker
        rows = [("claimed", now_us, job.id, job.queue, job.task, worker, job.fence, job.attempts) for job in jobs]
        self._bus.publish_rows(rows)

    async def _sleep(self, claimed: Claimed) -> None:
        assert self._listener is not None
        sleep_s = self._settings.poll
        if claimed.next_due_us is not None:
            until_due_s = (claimed.next_due_us - self._time.now_us()) / SECOND_US
            sleep_s = min(sleep_s, max(until_due_s, 0.0) + WAKE_EARLY_S)
        self.asleep = True
        self.on_empty()
        try:
            await self._listener.wait(sleep_s)
        except (OSError, StoreError) as error:  # a broken hint channel must not stop the worker: polling alone is correct
            log.warning("wake-up hints failed, polling instead: %s", error)
            await asyncio.sleep(sleep_s)
        finally:
            self.asleep = False
