"""The executor: a fixed number of slots that run claimed jobs and hand their outcomes to the committer.

A slot is one asyncio task that takes job after job: no task and no timer per job. Handlers raise or return; they never touch
the store. Whatever they do becomes an Outcome, the policy makes it a Change, and the committer writes it.

A run can be told to stop: its time is up, an operator cancels it, its lease is lost, the worker shuts down. That cancels the
slot while it is inside the handler; the slot turns the cancellation into the outcome that fits the reason, and goes on.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mulligan.core.change import Change, Verdict
from mulligan.core.clock import SECOND_US
from mulligan.core.codec import encode_result
from mulligan.core.errors import BadPayload, Fail, JobSignal
from mulligan.core.job import Job
from mulligan.core.outcome import CancelObeyed, Expired, Outcome, Raised, Released, Succeeded, Unstorable
from mulligan.observe.bus import EventBus
from mulligan.policy.classify import classify
from mulligan.policy.decide import decide, success
from mulligan.policy.error_info import reported
from mulligan.worker.committer import Committer
from mulligan.worker.conditions import Conditions
from mulligan.worker.context import Context
from mulligan.worker.perform import Performer, ThreadAbandoned, Undecodable
from mulligan.worker.policies import Policies
from mulligan.worker.registry import Registry, TaskDef
from mulligan.worker.run import Holdings, Run, StopReason, stopped_before_start
from mulligan.worker.store_time import StoreTime, loop_time
from mulligan.worker.threads import JobInterrupted

log = logging.getLogger("mulligan.executor")
UNKNOWN_TASK_DELAY_US = 30 * SECOND_US
TURNS_PER_YIELD = 32  # jobs a slot may run back to back before the other loops get a turn
CLOSE_MAX_S = 5.0  # for handlers that ignored one cancellation to obey the last
SUCCESS = Succeeded()  # of a handler that returned nothing, as most do
UNKNOWN_TASKS_MAX = 100  # names kept for status; stored data must not grow this process


class Executor:
    """Runs jobs. `accept` feeds it; `committer` takes what comes out."""

    committer: Committer  # set by the worker, which joins the two

    def __init__(
        self,
        *,
        concurrency: int,
        registry: Registry,
        policies: Policies,
        performer: Performer,
        holdings: Holdings,
        bus: EventBus,
        time: StoreTime,
        rng: random.Random,
        worker: str,
        state: Any,
        hold_s: Mapping[str, float],
        progress: Callable[[], None],
        conditions: Conditions,
    ) -> None:
        self._conditions = conditions
        self._board = conditions.board
        self._flow = conditions.flow
        self._sensors = conditions.sensors
        self._concurrency = concurrency
        self._registry = registry
        self._policies = policies
        self._performer = performer
        self._holdings = holdings
        self._bus = bus
        self._time = time
        self._rng = rng
        self._worker = worker
        self._state = state
        self._hold_s = hold_s
        self._progress = progress
        self._ready: deque[Run] = deque()
        self._slots: set[asyncio.Task[None]] = set()
        self._idle: list[asyncio.Future[None]] = []
        self._waking = False
        self._closing = False
        self._settle_numbers = itertools.count(1)  # with the worker's name, which is never reused, an id of its own for each change
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_s = math.inf  # when it fires, on the loop's clock
        self._loop_time: Callable[[], float] = float  # the loop is known when there are jobs
        self.new_run: Callable[[Job, float], Run] = Run
        self.running = 0  # jobs in a slot that the committer has not accepted yet
        self.busy = 0  # slots taken: running, or held through a short backoff
        self.accepted = 0  # outcomes handed over so far, for the fetcher's sense of pace
        self.unknown_tasks: set[str] = set()

    @property
    def waiting(self) -> int:
        """Claimed jobs that have no slot yet."""
        return len(self._ready)

    @property
    def room(self) -> int:
        """Free slots that no claimed job waits for."""
        return self._concurrency - self.busy - len(self._ready)

    @property
    def written_room(self) -> int:
        """Free slots of which the store knows, too, that they are free. Jobs that were claimed ahead may have more outcomes than slots."""
        return min(self.room, max(0, self.room - self.committer.unwritten))

    def accept(self, jobs: Sequence[Job], held_until_s: float = float("inf")) -> None:
        """Takes claimed jobs, in the order in which they shall start; until when their leases hold at least, on the loop's clock."""
        self._loop_time = loop_time()
        runs = [self.new_run(job, held_until_s) for job in jobs]
        self._holdings.add(runs)
        for run in runs:
            if run.stop is None or not self._given_back(run, run.stop):
                self._ready.append(run)
        self._wake_slot()

    def _given_back(self, run: Run, reason: StopReason) -> bool:
        """Gives back a job that is not to start here, without a slot, if the committer has room."""
        outcome = stopped_before_start(reason)
        return outcome is not None and self.committer.offer(self._decide(run, outcome), run)

    def stop_run(self, run: Run, reason: StopReason) -> None:
        """Tells one run to stop; the first reason counts, except that a lost lease overrules all."""
        if run.stop is not None and reason != "lost":
            return
        already_told = run.stop is not None
        run.stop = reason
        if run.context is not None:
            run.context.mark_cancelled()
        if run.in_handler and not already_told and run.slot is not None:
            run.slot.cancel()

    def take_unstarted(self) -> list[Run]:
        """Removes and returns the claimed jobs that no slot has begun."""
        runs = list(self._ready)
        self._ready.clear()
        return runs

    def settled(self, run: Run, change: Change, verdict: Verdict | None) -> None:
        """The committer's word that a change has its verdict (None: it was given up)."""
        self._holdings.drop(run)
        if run.holds_slot:
            is_backing_off = verdict is not None and verdict.applied and verdict.status == "pending"
            planned_s = change.delay_us / SECOND_US if is_backing_off else 0.0
            asyncio.get_running_loop().call_later(planned_s, self._free_slot)

    def unstorable(self, run: Run, reason: str) -> Change:
        """The change for an outcome that the store refuses to keep."""
        return self._decide(run, Unstorable(reason))

    def release(self, run: Run, reason: str) -> Change:
        """The change that gives a job back uncounted."""
        return self._decide(run, Released(reason))

    async def close(self) -> None:
        """Ends the slots. Runs must have been stopped before; a handler that ignores even the last cancellation is left behind."""
        self._closing = True
        for slot in self._slots:
            slot.cancel()
        if self._slots:
            _, stubborn = await asyncio.wait(set(self._slots), timeout=CLOSE_MAX_S)
            if stubborn:
                log.error("%d handlers ignore their cancellation; their jobs go back when their leases run out", len(stubborn))
        if self._timer is not None:
            self._timer.cancel()
        self._performer.close()

    # --- slots ---------------------------------------------------------------------------------------------------

    def _wake_slot(self) -> None:
        """Starts one more slot if a job waits. Each slot that begins wakes the next, so a burst of short jobs wakes few."""
        if self._waking or not self._ready:
            return
        while self._idle:
            waiter = self._idle.pop()
            if not waiter.done():
                self._waking = True
                waiter.set_result(None)
                return
        if len(self._slots) < self._concurrency:
            self._waking = True
            slot = asyncio.get_running_loop().create_task(self._slot(), name="mulligan-slot")
            self._slots.add(slot)
            slot.add_done_callback(self._on_slot_end)

    def _on_slot_end(self, slot: asyncio.Task[None]) -> None:
        self._slots.discard(slot)
        if not self._closing:  # another one takes its place
            self._waking = False
            self._wake_slot()
            self._progress()

    async def _slot(self) -> None:
        this = asyncio.current_task()
        assert this is not None
        turns = 0
        while True:
            self._waking = False
            while self._ready and self.busy < self._concurrency:
                run = self._ready.popleft()
                run.slot = this
                self.busy += 1
                self.running += 1
                if self._ready and not self._waking:
                    self._wake_slot()
                try:
                    await self._execute(run)
                except BaseException as error:
                    self._give_up(run, error)
                    if not isinstance(error, Exception):
                        raise
                finally:
                    self.running -= 1
                if this.cancelling():  # by its handler, or by the loop's end: what is left of that must not meet the next job
                    return
                turns += 1
                if turns % TURNS_PER_YIELD == 0:
                    self._progress()
                    await asyncio.sleep(0)
            self._progress()
            waiter = asyncio.get_running_loop().create_future()
            self._idle.append(waiter)
            await waiter

    def _give_up(self, run: Run, error: BaseException) -> None:
        """A run that ended without an outcome: its slot is free, and its lease is left to run out."""
        self.busy -= 1
        if isinstance(error, Exception):
            log.critical("a bug: job %s ended without an outcome; it goes back when its lease runs out", run.job.id, exc_info=error)
            self._holdings.drop(run)

    def _free_slot(self) -> None:
        self.busy -= 1
        self._wake_slot()
        self._progress()

    async def _execute(self, run: Run) -> None:
        """One job, from its slot to the committer: resolve, perform, decide, submit. Nothing a handler does may escape from here."""
        task = self._begun(run)
        if isinstance(task, TaskDef):
            run.begin()
            try:
                value = await self._performer.call(task, run.job, run.context)
            except GeneratorExit:
                raise
            except BaseException as error:  # noqa: BLE001 - every way out of a handler is an outcome
                run.end()
                outcome = self._after_error(run, error)
            else:
                run.end()
                outcome = SUCCESS if value is None and run.stop is None else self._after_return(run, value)
        else:
            outcome = task
        if outcome is None:  # the lease is another's now: nothing of this run may be written
            self._holdings.drop(run)
            self.busy -= 1
            return
        if run.started_at_us is not None:
            self._conditions.ended(run.job, outcome)
        change = self._decide(run, outcome)
        run.holds_slot = bool(self._hold_s) and self._holds_slot(change)
        if not self.committer.offer(change, run):
            await self.committer.submit(change, run)
        self.accepted += 1
        if not run.holds_slot:
            self.busy -= 1

    def _begun(self, run: Run) -> TaskDef | Outcome | None:
        """The task whose handler is to be called now; else what becomes of a run that does not start."""
        job = run.job
        task = self._registry.get(job.task)
        if run.stop is not None:
            return stopped_before_start(run.stop)
        now_s = self._loop_time()
        if not run.is_sure(now_s):  # a slow answer, a pause: it may be another's by now, or even done
            return Released("its lease may have run out before it could start")
        if task is None:
            if len(self.unknown_tasks) < UNKNOWN_TASKS_MAX:
                self.unknown_tasks.add(job.task)
            return Released(f"this worker does not know the task {job.task!r}", UNKNOWN_TASK_DELAY_US)
        now_us = self._time.now_us()
        if job.group is not None and (refusal := self._board.refusal(job, now_us)):
            return Released(refusal)
        if job.max_age_us is not None and now_us >= job.due_first_us + job.max_age_us:
            return Expired()
        run.started_at_us = now_us
        self._flow.started(job, now_us)
        if task.wants_context or self._performer.has_middleware:  # somebody is going to see it
            run.context = Context(job, self._state, None if job.timeout_us is None else now_us + job.timeout_us, self._performer.book)
        if job.lane == "retry":
            self._bus.publish_row(("restarted", now_us, job.id, job.queue, job.task, self._worker, job.fence, job.attempts, job.due_us))
        else:
            self._bus.publish_row(("started", now_us, job.id, job.queue, job.task, self._worker, job.fence, job.attempts))
        if job.timeout_us is not None:
            run.deadline = now_s + job.timeout_us / SECOND_US
            if run.deadline < self._timer_at_s:
                self._watch(run.deadline)
        return task

    def _after_return(self, run: Run, value: Any) -> Outcome | None:
        assert run.slot is not None
        if run.stop is not None:
            run.slot.uncancel()  # it was told to stop, and ended by itself
        if run.stop == "lost":
            return None
        if value is None:
            return SUCCESS
        if isinstance(value, JobSignal):
            return self._classify(run, value)
        try:
            return Succeeded(encode_result(value))
        except BadPayload as problem:
            # The work is done, so a retry would only repeat it: this is for a person to see.
            return self._classify(run, Fail(f"the handler returned something that cannot be stored: {problem}", code="bad_result"))

    def _after_error(self, run: Run, error: BaseException) -> Outcome | None:
        assert run.slot is not None
        stopped = isinstance(error, (asyncio.CancelledError, JobInterrupted, ThreadAbandoned))
        if run.stop is not None:
            run.slot.uncancel()
        elif isinstance(error, asyncio.CancelledError) and run.slot.cancelling() and self.committer.ending:
            # The whole loop is being torn down: give the job back, then let the cancellation go on.
            self.committer.offer(self.release(run, "the worker was torn down"), run)
            raise error
        if run.stop == "lost":
            return None
        if run.stop == "cancel":
            return CancelObeyed("cancelled while it ran")
        if run.stop == "timeout" and stopped:
            timeout_s = (run.job.timeout_us or 0) / SECOND_US
            late = "; its thread did not stop" if isinstance(error, ThreadAbandoned) else ""
            return self._classify(run, TimeoutError(f"timed out after {timeout_s:g} s{late}"), timed_out=True)
        if run.stop == "shutdown" and stopped:
            # Only code that has stopped may be given back; an abandoned thread is left to its lease.
            return None if isinstance(error, ThreadAbandoned) else Released("the worker shut down")
        if isinstance(error, Undecodable):
            damage = reported(str(error), self._time.now_us(), exception_type="Undecodable")
            return Raised(error=damage, ruling="give_up", rule="its stored payload is damaged, which no retry can mend")
        return self._classify(run, error)

    def _classify(self, run: Run, error: BaseException, *, timed_out: bool = False) -> Outcome:
        return classify(error, self._policies.for_job(run.job), self._time.now_us(), timed_out=timed_out)

    def _decide(self, run: Run, outcome: Outcome) -> Change:
        now_us = self._time.now_us()
        settle_id = f"{self._worker}#{next(self._settle_numbers)}"
        if type(outcome) is Succeeded:  # most of all outcomes, and no policy has to be asked
            return success(run.job, outcome, now_us, settle_id=settle_id, worker=self._worker, started_at_us=run.started_at_us)
        policy = self._policies.for_job(run.job)
        return decide(
            run.job,
            outcome,
            policy,
            self._sensors.signals(run.job, now_us, policy),
            self._rng,
            settle_id=settle_id,
            worker=self._worker,
            started_at_us=run.started_at_us,
        )

    def _holds_slot(self, change: Change) -> bool:
        """Whether the slot stays empty through this backoff, for queues that ask for it (hold_slot_up_to)."""
        if change.status != "pending" or change.lane != "retry":
            return False
        return change.delay_us / SECOND_US <= self._hold_s.get(change.queue, 0.0)

    # --- time-outs -----------------------------------------------------------------------------------------------

    def _watch(self, deadline: float) -> None:
        """One timer for all runs: it stands at the earliest deadline anybody asked for."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(deadline, self._check_deadlines)
        self._timer_at_s = deadline

    def _check_deadlines(self) -> None:
        self._timer, self._timer_at_s = None, math.inf
        now = asyncio.get_running_loop().time()
        running = [run for run in self._holdings.runs() if run.in_handler and run.deadline is not None and run.stop is None]
        for run in running:
            if run.deadline is not None and run.deadline <= now:
                self.stop_run(run, "timeout")
            elif run.deadline is not None and run.deadline < self._timer_at_s:
                self._watch(run.deadline)
