"""The fetcher: keeps the slots filled. It claims what fits, hands it to the executor in fair order, and sleeps when nothing is due.

How much it claims. Free slots, always. Beyond them only what will have started by the time the next claim could answer:
the pace of the last round times the length of a claim. For long jobs that is nothing, so that order, shutdown and leases stay exact;
for short ones it keeps the slots busy while the claim is under way.

How it sleeps. Until a hint comes, or the next pending job falls due, or the poll interval is over, whichever is first. Where a limit of
the fleet held jobs back, also until an outcome of this worker is written: that may have freed what they wait for. Such jobs may be many and
wait long, so what it does meanwhile is bounded: after a claim for nothing it hears no hints for a moment; the more of them, the longer
it lets tokens gather, since other workers wait for the same ones; and groups too many for one claim are looked through once in a poll.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING

from mulligan.core.clock import SECOND_US
from mulligan.core.contract import Ask, Claimed, Listener, Near, Store
from mulligan.core.errors import StoreError
from mulligan.core.events import Event
from mulligan.core.ids import new_id
from mulligan.core.job import Job
from mulligan.core.limits import Bucket
from mulligan.observe.bus import EventBus
from mulligan.worker.conditions import Conditions
from mulligan.worker.executor import Executor
from mulligan.worker.health import StoreHealth
from mulligan.worker.rounds import Rounds
from mulligan.worker.run import SURE_OF_LEASE
from mulligan.worker.settings import WorkerSettings
from mulligan.worker.store_time import StoreTime

if TYPE_CHECKING:
    from mulligan.worker.child_link import ChildLink

log = logging.getLogger("mulligan.fetcher")
AHEAD_CLAIMS = 4  # reach so many lengths of a claim ahead: half of it is under way in one claim while the other half is worked on
SMOOTHING = 0.3  # weight of the newest claim in the running averages of its length, and of the round it ends
ROUND_MAX_S = 1.0  # as which a longer round counts: after an idle hour the pace is soon known again
AGAIN_S = 0.02  # pause before the next claim when one found nothing although something is due
GATHER_DOUBLINGS = 4  # of that pause, while tokens gather and others take them
WAKE_EARLY_S = 0.0005  # a timer may fire a little early; asking again costs less than sleeping a whole poll


class Fetcher:
    """One loop. `progress` is called whenever the executor moves on."""

    def __init__(
        self,
        store: Store,
        near: Near,
        executor: Executor,
        conditions: Conditions,
        bus: EventBus,
        health: StoreHealth,
        time: StoreTime,
        settings: WorkerSettings,
        worker: str,
    ) -> None:
        self._conditions = conditions
        self._flow = conditions.flow
        self._store = store
        self._near = near
        self._executor = executor
        self._planner = conditions.planner
        self._bus = bus
        self._health = health
        self._time = time
        self._settings = settings
        self._ahead_max = settings.width_on(store).ahead
        self._worker = worker
        self._progress: asyncio.Future[None] | None = None
        self._freed: asyncio.Future[None] | None = None  # set while it rests beside jobs that a limit held back
        self._writes = 0
        self._writes_seen = 0  # as many as there were when the last claim was sent
        self._listener: Listener | None = None
        self._held_until_s = 0.0  # how long the leases of the last claim hold at least, on the loop's clock
        self._claim_s = 0.0  # running average of a claim's length
        self._answered_s = 0.0  # when the last claim was answered, on the loop's clock
        self._ended_before = 0  # outcomes there were then
        self._round_s = 0.0  # running average of the time from one answer to the next
        self._ended = 0.0  # and of the jobs that ended in it
        self._ahead = 0
        self._asks: Sequence[Ask] = ()  # of the last claim
        self._rounds = Rounds()
        self._fruitless = 0  # claims in a row that got nothing because limits held everything back
        self._stopping = False
        self._backing_off = False  # the store does not answer, and it waits before it asks again
        self._task: asyncio.Task[None] | None = None
        self.asleep = False  # waiting for work: nothing was due at the last look
        self.is_claiming = False
        self.taken = 0  # jobs that its claims have brought
        self.on_empty: Callable[[], None] = lambda: None  # told before each sleep
        self.link: ChildLink | None = None  # to a supervisor, which is told of every claim

    def progress(self) -> None:
        """Something changed in the executor: there may be room now."""
        if self._progress is not None and not self._progress.done():
            self._progress.set_result(None)

    def written(self) -> None:
        """Outcomes were written: what limits of the fleet held back may be free now."""
        self._writes += 1
        self.progress()
        if self._freed is not None and not self._freed.done():
            self._freed.set_result(None)

    def stop(self) -> None:
        """Ends the loop: at once while it waits, after its answer while a claim is under way, so that no claimed job is forgotten."""
        self._stopping = True
        self.progress()
        if (self.asleep or self._backing_off) and self._task is not None:
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
                self.is_claiming = True
                claimed = await self._claim(wanted)
                self.is_claiming = False
                if claimed is None:
                    return
                self.taken += len(claimed.jobs)
                if claimed.jobs:
                    await self._start(claimed)
                elif not claimed.held_back and not self._executor.waiting:
                    self._flow.ran_dry()
                if self.link is not None and not claimed.jobs:
                    self.link.claimed()
                if len(claimed.jobs) < wanted and not self._stopping:
                    await self._sleep(claimed)
        finally:
            self._listener.close()

    def _wanted(self) -> int:
        if not self._conditions.is_informed:
            return 0
        # Beside a lane with slots of its own, a slot counts as free when its outcome is written. The store gives the lane's place back only
        # then: a claim before that would give the slot to the other lane, and the lane's next job would find none. Where claims reach
        # ahead of the slots they do so all the same: jobs are so short then that the lane does not wait for long.
        room = self._executor.written_room if self._planner.has_capped_lane else self._executor.room
        wanted = room + self._ahead
        if room > 0 or wanted > self._ahead // 2:
            return wanted
        return 0

    async def _claim(self, wanted: int) -> Claimed | None:
        """One claim, repeated under the same claim id until the store has answered, so that no answer is lost."""
        loop = asyncio.get_running_loop()
        claim_id = new_id(self._time.now_us())
        if self.link is not None:
            self._backing_off = True
            await self.link.kept()
            self._backing_off = False
            await self.link.claiming(claim_id)
        began_s = loop.time()
        self._writes_seen = self._writes
        while True:
            self._backing_off = False
            try:
                asks = self._planner.asks(wanted)
                sent_s = loop.time()
                claimed = await self._near.claim(claim_id, self._worker, asks, wanted, self._settings.lease_us)
                self._conditions.learn(asks, claimed)
                self._asks = asks
                self._fruitless = self._fruitless + 1 if claimed.held_back and not claimed.jobs else 0
                break
            except StoreError as error:
                if not error.retryable:
                    log.error("claiming failed: %s", error)
                if self._stopping:
                    return None  # what an unheard answer may have claimed goes back when its lease runs out
                self._backing_off = True
                await self._health.failed(error)
        self._health.ok()
        self._time.set(claimed.now_us)
        if claimed.jobs:
            # The store says how long it gives: a repeat whose first answer was lost gets no new lease. Counted from before it was asked.
            lease_s = (min([job.lease_expires_at_us or 0 for job in claimed.jobs]) - claimed.now_us) / SECOND_US
            self._held_until_s = sent_s + lease_s * SURE_OF_LEASE
        self._pace(began_s, loop.time(), len(claimed.jobs), wanted)
        return claimed

    def _pace(self, began_s: float, now_s: float, got: int, wanted: int) -> None:
        """Sets how far the next claim may reach beyond the free slots: by how many jobs have ended in the last rounds, from the answer of
        one claim to that of the next. What ends while a claim is under way would not do: few slots may be through with all they have
        before it is sent. Nor would one round: slots that were filled together end together, and then nothing ends for a while."""
        took_s, pause_s, ended = now_s - began_s, began_s - self._answered_s, self._executor.accepted - self._ended_before
        round_s = min(ROUND_MAX_S, pause_s + took_s)
        self._answered_s, self._ended_before = now_s, self._executor.accepted
        if self._claim_s:
            took_s = min(took_s, 2 * self._claim_s)  # a store that stands still for a moment is no slow one
        self._claim_s = took_s if self._claim_s == 0 else self._claim_s + SMOOTHING * (took_s - self._claim_s)
        self._round_s += SMOOTHING * (round_s - self._round_s)
        self._ended += SMOOTHING * (ended - self._ended)
        if not got or ended == 0 or took_s <= 0:
            # Nothing is due, or jobs outlast a claim: no reason to hold jobs that cannot start.
            self._ahead = self._ahead // 2 if got == wanted else 0
            return
        reach = int(AHEAD_CLAIMS * self._ended / self._round_s * self._claim_s)
        if got < wanted:
            reach = min(reach, self._ahead // 2)  # there is no more for the moment, but what fails and is due again comes in waves
        elif pause_s <= took_s and self._executor.room == self._settings.concurrency and 2 * ended >= min(got, self._settings.concurrency):
            # All have ended, and enough of them, while the next ones were asked for: claims set the pace, and not the jobs.
            reach = max(reach, AHEAD_CLAIMS * got)
        self._ahead = min(self._ahead_max, reach)

    async def _start(self, claimed: Claimed) -> None:
        jobs = self._planner.interleave(claimed.jobs, claimed.held_back)
        self._tell_claimed(jobs, claimed.now_us)
        if self.link is not None:
            jobs = await self.link.take(jobs[0].claim_id or "", jobs)
            self.link.claimed()
        self._executor.accept(jobs, self._held_until_s)

    def _tell_claimed(self, jobs: list[Job], now_us: int) -> None:
        batch = {"jobs": len(jobs), "claim_id": jobs[0].claim_id}
        self._bus.publish([Event(kind="CLAIM_START", at_us=now_us, worker=self._worker, detail=batch)])
        worker = self._worker
        rows = [("claimed", now_us, job.id, job.queue, job.task, worker, job.fence, job.attempts) for job in jobs]
        self._bus.publish_rows(rows)

    async def _sleep(self, claimed: Claimed) -> None:
        has_more = claimed.next_due_us is not None and claimed.next_due_us <= claimed.now_us
        if claimed.jobs or not has_more:
            self._rounds.begin()
        if claimed.jobs and has_more:
            return  # it moves
        sleep_s = self._pause_s(claimed, has_more=has_more)
        self.asleep = True
        self.on_empty()
        try:
            await (self._rest_until_freed(sleep_s) if claimed.held_back else self._rest(sleep_s))
        finally:
            self.asleep = False

    def _pause_s(self, claimed: Claimed, *, has_more: bool) -> float:
        """How long to sleep at most."""
        if has_more:
            if not claimed.held_back or not self._rounds.is_complete(self._asks, claimed):
                return min(self._settings.poll, AGAIN_S)
            self._rounds.begin()
            return self._settings.poll
        if claimed.next_due_us is None:
            return self._settings.poll
        until_due_s = max(0.0, (claimed.next_due_us - self._time.now_us()) / SECOND_US) + WAKE_EARLY_S
        return min(self._settings.poll, max(until_due_s, self._gather_s() if claimed.held_back else 0.0))

    def _gather_s(self) -> float:
        """How long tokens may gather before the next claim: not so long that a bucket runs over."""
        buckets = [limit for limits in {id(ask.limits): ask.limits for ask in self._asks}.values() for limit in limits]
        fills_s = [limit.burst_u / limit.rate_u for limit in buckets if isinstance(limit, Bucket) and limit.rate_u]
        return min([AGAIN_S * 2.0 ** min(self._fruitless, GATHER_DOUBLINGS), *(fill_s / 2 for fill_s in fills_s)])

    async def _rest(self, sleep_s: float) -> None:
        assert self._listener is not None
        try:
            await self._listener.wait(sleep_s)
        except (OSError, StoreError) as error:  # a broken hint channel must not stop the worker: polling alone is correct
            log.warning("wake-up hints failed, polling instead: %s", error)
            await asyncio.sleep(sleep_s)

    async def _rest_until_freed(self, sleep_s: float) -> None:
        """Rests, but not longer than until an outcome of this worker is written. After a claim for nothing it hears no hints for a moment;
        after the second one in a row, which its own outcomes have not helped either, it waits for that moment in any case."""
        deaf_s = min(sleep_s, AGAIN_S) if self._fruitless else 0.0
        if self._fruitless > 1:
            await asyncio.sleep(deaf_s)
        elif self._writes != self._writes_seen or (deaf_s and await self._is_freed(asyncio.sleep(deaf_s))):
            return  # one was written while the claim was under way, or since
        if self._writes == self._writes_seen:
            await self._is_freed(self._rest(sleep_s - deaf_s))

    async def _is_freed(self, resting: Coroutine[None, None, None]) -> bool:
        """Whether an outcome is written before that rest is over."""
        self._freed = freed = asyncio.get_running_loop().create_future()
        rest = asyncio.ensure_future(resting)
        try:
            await asyncio.wait({rest, freed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._freed = None
            rest.cancel()
            await asyncio.gather(rest, return_exceptions=True)
        if not rest.cancelled():
            rest.result()
        return freed.done()
