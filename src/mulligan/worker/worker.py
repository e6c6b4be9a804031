"""The worker: joins fetcher, executor, committer, keeper, sweeper, scheduler and pruner, starts them and stops them.

    fetcher → executor → committer        beside them: keeper, sweeper, scheduler, pruner

Stopping is cooperative. It claims no more; gives back what has not started, uncounted; lets handlers finish within the grace
time; stops and gives back what is left; writes every outcome; and only then lets go of the leases.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec

from mulligan.core.contract import Near, Renewal, WorkerInfo
from mulligan.core.errors import IllegalMove, StoreError
from mulligan.core.events import Event
from mulligan.core.ids import new_id
from mulligan.policy.retry import RetryPolicy
from mulligan.worker.committer import Committer
from mulligan.worker.conditions import Conditions
from mulligan.worker.equipment import Equipment
from mulligan.worker.executor import Executor
from mulligan.worker.fetcher import Fetcher
from mulligan.worker.health import StoreHealth
from mulligan.worker.keeper import Keeper, KeeperThread
from mulligan.worker.perform import THREAD_STOP_S, Performer
from mulligan.worker.policies import Policies
from mulligan.worker.pruner import Pruner
from mulligan.worker.receipts import LostLeases, ReceiptBook
from mulligan.worker.run import Holdings
from mulligan.worker.scheduler import Scheduler
from mulligan.worker.settings import WorkerSettings, worker_name
from mulligan.worker.side_loop import repeat
from mulligan.worker.store_time import StoreTime, loop_time
from mulligan.worker.sweeper import Sweeper
from mulligan.worker.switching import GC_EVERY, THREAD_TURNS

if TYPE_CHECKING:
    from mulligan.worker.child_link import ChildLink, Reporter
    from mulligan.worker.solo import Feeder

log = logging.getLogger("mulligan.worker")
STOP_MARGIN_S = 6.0  # for handlers to obey the last cancellation; a little more than a thread gets
FLUSH_MAX_S = 10.0  # for the last outcomes to be written when the store is slow


class Worker:
    """`async with worker:` runs it; `drain` waits until nothing is left to do; `stop` ends it cleanly."""

    def __init__(self, equipment: Equipment, settings: WorkerSettings) -> None:
        self.settings = settings
        self._kit = equipment
        self._store = equipment.store
        self._bus = equipment.bus
        self._rng = equipment.rng
        self._time = StoreTime()
        self._tasks: list[asyncio.Task[None]] = []
        self._keeper_task: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._quiet = asyncio.Event()  # set when the worker may have run out of work
        self._hurry = asyncio.Event()  # set when stopping must not wait any longer
        self._dead = asyncio.Event()  # set when a loop has died of a bug
        self._near: Near | None = None
        self.link: ChildLink | None = None  # set before the start where a supervisor renews the leases
        self._started_at_us = 0
        self._running = False
        self.name = ""

    async def __aenter__(self) -> Worker:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.stop()

    async def start(self) -> None:
        """Runs the start-up hooks and starts the loops."""
        if self._running:
            raise IllegalMove("this worker is already running; make another one with app.worker()")
        for hook in self._kit.startup:
            await hook()
        self._started_at_us = await self._store.now_us()
        self._near = await self._store.near()
        self._stopping = None
        self._holdings = Holdings()
        self._loop = asyncio.get_running_loop()
        self._time.set(self._started_at_us)
        self.name = worker_name(new_id(self._started_at_us))
        self._assemble()
        with suppress(StoreError):  # tried again by its loop, and nothing is claimed before
            await self._conditions.beat()
        self._running = True
        if self.link is not None and not self.link.solo:
            self.link.hello(self.name)  # before anything can block this loop: from now on its leases are renewed
        self._start_loops()
        if self.settings.thread_turn is not None:
            THREAD_TURNS.borrow(self.settings.thread_turn)
        if self.settings.gc_every is not None:
            GC_EVERY.borrow(self.settings.gc_every)
        try:
            await self._tell("WORKER_STARTED", {"queues": sorted(self._kit.queues), "concurrency": self.settings.concurrency})
            if self.link is not None and self.link.solo:
                self.link.hello(self.name)  # after its last write: a job that holds the interpreter must not hold a store's lock with it
        except BaseException:  # cancelled, say: nobody will call stop for a worker that did not start
            await self.stop()
            raise

    def _assemble(self) -> None:
        kit, settings = self._kit, self.settings
        self._policies = Policies(kit.registry, kit.queues, kit.policy)
        self._conditions = Conditions(
            self._store,
            self._bus,
            self.name,
            registry=kit.registry,
            queues=kit.queues,
            downstreams=kit.downstreams,
            adapts=any(policy.adaptive for policy in self.task_policies().values()),
            now_us=self._time.now_us,
            rng=self._rng,
            flow=kit.flow,
        )
        self._conditions.take_stock()  # so that its first report has its limits
        self._health = StoreHealth(self._bus, self.name, self._rng, self._time.now_us)
        self._lost = LostLeases(self._holdings, self._bus, self._time.now_us, self.name)
        book = ReceiptBook(self._store, self._health, self._lost)
        self.executor = Executor(
            concurrency=settings.concurrency,
            registry=kit.registry,
            policies=self._policies,
            performer=Performer(kit.middleware, settings.concurrency, THREAD_STOP_S if self.link is None else None, book),
            holdings=self._holdings,
            bus=self._bus,
            time=self._time,
            rng=self._rng,
            worker=self.name,
            state=kit.state,
            hold_s={queue.name: queue.hold_slot_up_to for queue in kit.queues.values() if queue.hold_slot_up_to},
            progress=self._on_progress,
            conditions=self._conditions,
        )
        near = self._near or self._store
        self._committer = self.executor.committer = Committer(
            near,
            self._bus,
            self._health,
            batch_max=settings.width_on(kit.store).batch,
            buffer_max=settings.buffer,
            settled=self.executor.settled,
            written=self._on_written,
            unstorable=self.executor.unstorable,
        )
        self._fetcher: Fetcher | Feeder = Fetcher(
            self._store, near, self.executor, self._conditions, self._bus, self._health, self._time, settings, self.name
        )
        self._fetcher.link = self.link
        self._keeper: Keeper | Reporter = Keeper(
            self._store, self._holdings, settings.lease, self._describe, self._on_renewals, self._loop.is_closed, loop_time()
        )
        self._keeper_thread = KeeperThread(self._keeper) if settings.keeper_thread and self.link is None else None
        if self.link is not None:
            self.executor.new_run = self.link.new_run
            self._holdings.on_drop = self.link.drop
            self.link.on_answers = self._apply_renewals
            self._keeper = self.link.reporter(settings.lease, self._describe)
            self._fetcher = self.link.feeder(self.executor, self._time) or self._fetcher
            self.link.sort_by(self._policies)
        self._fetcher.on_empty = self._on_progress
        self._conditions.changed = self._fetcher.written  # what was held back may not be any more
        self._sweeper = Sweeper(self._store, self._policies, self._bus, self._rng, self.name, self._conditions)
        self._scheduler = Scheduler(self._store, self._bus)
        self._pruner = Pruner(self._store, settings)

    def _start_loops(self) -> None:
        self._committer_task = self._spawn("committer", self._committer.run())
        self._fetcher_task = self._spawn("fetcher", self._fetcher.run())
        chores = [("board", self._conditions.keep_up)]
        if self.link is None or not self.link.solo:  # a process for one dangerous job is no place for the chores of the fleet
            chores += [("sweeper", self._sweep), ("scheduler", self._scheduler.fire_due), ("pruner", self._prune)]
        self._tasks = [self._spawn(name, self._repeat(step)) for name, step in chores]
        if self._keeper_thread is not None:
            self._keeper_thread.start()
        else:
            self._keeper_task = self._spawn("keeper", self._keeper.run())

    def _spawn(self, name: str, loop: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(loop, name=f"mulligan-{name}")
        task.add_done_callback(self._on_loop_end)
        return task

    def _on_loop_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            log.critical("the %s died; stopping this worker", task.get_name(), exc_info=task.exception())
            self._dead.set()
            self._quiet.set()
            self._last_stop = asyncio.create_task(self.stop())  # else its leases would be renewed for ever

    def _repeat(self, step: Callable[[], Awaitable[float]]) -> Coroutine[Any, Any, None]:
        return repeat(step, self._health, self._rng, self.settings.poll)

    async def _sweep(self) -> float:
        await self._sweeper.sweep()
        return self.settings.sweep

    async def _prune(self) -> float:
        await self._pruner.prune()
        return self._pruner.every_s

    # --- what the loops tell ---------------------------------------------------------------------------------------

    def _on_progress(self) -> None:
        self._fetcher.progress()
        if self._fetcher.asleep and not self._holdings:
            self._quiet.set()
        if self.executor.running == 0:
            self._quiet.set()

    def _on_written(self) -> None:
        self._on_progress()
        self._fetcher.written()

    def _on_renewals(self, renewals: Sequence[Renewal]) -> None:
        self._loop.call_soon_threadsafe(self._apply_renewals, renewals)

    def _apply_renewals(self, renewals: Sequence[Renewal]) -> None:
        for renewal in renewals:
            run = self._holdings.find(renewal.job_id, renewal.fence)
            if run is None:
                continue
            if renewal.held:
                self.executor.stop_run(run, "cancel")
            elif run.stop != "lost" and (run.in_handler or run.started_at_us is None):  # else its own verdict will tell
                self.executor.stop_run(run, "lost")
                self._lost.tell(run.job, "the renewal was refused")

    def _describe(self) -> WorkerInfo:
        report = self._conditions.report
        return WorkerInfo(
            id=self.name,
            host=socket.gethostname(),
            pid=os.getpid(),
            queues=tuple(sorted(self._kit.queues)),
            concurrency=self.settings.concurrency,
            running=self.executor.running,
            started_at_us=self._started_at_us,
            unknown_tasks=tuple(sorted(self.executor.unknown_tasks)),
            version=self._kit.version,
            figures=report.figures,
            claims=report.claims,
            limits=report.limits,
        )

    async def _tell(self, kind: Any, detail: dict[str, Any]) -> None:
        event = Event(kind=kind, at_us=self._time.now_us(), worker=self.name, detail=detail)
        self._bus.publish([event])
        try:
            await self._store.record_events([event])
        except StoreError as error:
            log.warning("could not record %s: %s", kind, error)

    # --- what the owner asks ---------------------------------------------------------------------------------------

    async def drain(self) -> None:
        """Returns when its queues hold nothing that is ready or waits for a retry, and nothing runs here.

        Jobs scheduled for later, and those of paused queues, are left.
        """
        while True:
            self._quiet.clear()
            if self._dead.is_set():
                raise IllegalMove("a loop of this worker died, see the log; the jobs it held go back when their leases run out")
            if not self._running or self._stopping is not None:
                raise IllegalMove("this worker does not run, or was stopped before its queues were empty")
            fetcher, taken = self._fetcher, self._fetcher.taken
            if fetcher.asleep and not self._holdings:
                stats = await self._store.stats()
                mine = [queue for queue in stats.queues if queue.queue in self._kit.queues and not queue.paused]
                has_work = any(queue.fresh_ready or queue.retry_ready or queue.retry_later for queue in mine)
                # What was claimed meanwhile, or is being claimed, may be what the figures do not show as waiting any more.
                if not (has_work or self._holdings or fetcher.is_claiming or fetcher.taken > taken):
                    return
            await self._quiet.wait()

    @property
    def equipment(self) -> Equipment:
        """What its app has lent it."""
        return self._kit

    @property
    def is_running(self) -> bool:
        """Whether it has started and was not told to stop."""
        return self._running and self._stopping is None

    @property
    def jobs_held(self) -> int:
        """Claimed jobs that have no verdict yet."""
        return len(self._holdings) if self._running else 0

    @property
    def queue_names(self) -> list[str]:
        """The queues it serves."""
        return sorted(self._kit.queues)

    def task_policies(self) -> dict[str, RetryPolicy]:
        """The policy that new jobs of each task start from, by the task's name."""
        policies = Policies(self._kit.registry, self._kit.queues, self._kit.policy)
        return {task.name: policies.for_task(task, task.queue) for task in self._kit.registry if task.function is not None}

    async def wait_dead(self) -> None:
        """Returns only if one of the loops has died of a bug."""
        await self._dead.wait()

    def hurry(self) -> None:
        """Cuts the grace time of a stop that is under way."""
        self._hurry.set()

    async def stop(self) -> None:
        """Stops cleanly; see the head of this file. All who call it wait for the same end, which no one's impatience cuts short."""
        if not self._running:
            return
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop(), name="mulligan-stop")
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        self._quiet.set()
        self._fetcher.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(self._fetcher_task, *self._tasks, return_exceptions=True)
        await self._in_time(self._give_back_unstarted())
        if not await self._wait_idle(self.settings.grace):
            for run in self._holdings.runs():
                self.executor.stop_run(run, "shutdown")
            self._hurry.clear()
            await self._wait_idle(STOP_MARGIN_S)
        await self._in_time(self._committer.flush())
        if self._keeper_thread is not None:
            await self._keeper_thread.stop()
        last = [self._committer_task] if self._keeper_task is None else [self._committer_task, self._keeper_task]
        for task in last:
            task.cancel()
        await asyncio.gather(*last, return_exceptions=True)
        await self.executor.close()
        if self._near is not None:
            await self._near.close()
        try:
            for hook in self._kit.shutdown:
                await hook()
        finally:
            self._running = False
            if self.settings.thread_turn is not None:
                THREAD_TURNS.put_back()
            if self.settings.gc_every is not None:
                GC_EVERY.put_back()
            await self._sign_off()
            await self._tell("WORKER_STOPPED", {"unfinished": len(self._holdings)})

    async def _give_back_unstarted(self) -> None:
        for run in self.executor.take_unstarted():
            await self._committer.submit(self.executor.release(run, "the worker shut down before it started"), run)

    async def _in_time(self, writing: Coroutine[Any, Any, None]) -> None:
        """Waits for outcomes to be written, but not for ever."""
        try:
            await asyncio.wait_for(writing, FLUSH_MAX_S)
        except TimeoutError:
            log.error("the store does not answer; %d outcomes were not written, their jobs run again", len(self._holdings))

    async def _sign_off(self) -> None:
        """A last beat, so that nobody counts on this worker any more."""
        try:
            await self._conditions.last_beat()
            await self._store.renew([], self.settings.lease_us, msgspec.structs.replace(self._describe(), stopped=True))
        except StoreError as error:
            log.warning("could not sign off: %s", error)

    async def _wait_idle(self, limit_s: float) -> bool:
        """True once nothing runs; False when the time is over or somebody is in a hurry."""
        deadline = self._loop.time() + limit_s
        while self.executor.running > 0:
            self._quiet.clear()
            left_s = deadline - self._loop.time()
            if left_s <= 0 or self._hurry.is_set():
                return False
            waits = [asyncio.ensure_future(self._quiet.wait()), asyncio.ensure_future(self._hurry.wait())]
            await asyncio.wait(waits, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
        return True
