"""Conditions: under what limits this worker claims right now, by which settings, and what its policies may know.

Joins the board (what the fleet shares by notes), the sensors (what this worker has seen) and the planner (how it asks). One beat of it
reads and writes the board; between beats everything is in memory.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import NamedTuple

from mulligan.core.contract import Ask, Claimed, Store
from mulligan.core.errors import BadSetting, StoreError
from mulligan.core.figures import Figures
from mulligan.core.job import Job
from mulligan.core.limits import Bucket, Limit
from mulligan.core.outcome import Outcome, Raised, Succeeded
from mulligan.observe.bus import EventBus
from mulligan.observe.flow import Flow
from mulligan.policy.breaker import is_of_breaker
from mulligan.policy.downstream import Downstream
from mulligan.policy.lanes import name_of_strategy
from mulligan.policy.planner import LanePlanner
from mulligan.policy.queues import Queue, with_changes
from mulligan.worker.board import PRESSING_S, Board
from mulligan.worker.budget_watch import BudgetWatch
from mulligan.worker.registry import Registry
from mulligan.worker.sensors import Sensors

log = logging.getLogger("mulligan.worker")


class Report(NamedTuple):
    """What a worker tells of itself with its renewals, beside its name and its size (core/contract.WorkerInfo)."""

    figures: dict[str, Figures] = {}
    claims: dict[str, str] = {}
    limits: dict[str, tuple[Limit, ...]] = {}


class Conditions:
    """One per worker; `changed` is called when other settings are in force."""

    def __init__(
        self,
        store: Store,
        bus: EventBus,
        worker: str,
        *,
        registry: Registry,
        queues: Mapping[str, Queue],
        downstreams: Mapping[str, Downstream],
        adapts: bool,
        now_us: Callable[[], int],
        rng: Random,
        flow: Flow | None = None,
    ) -> None:
        self._store = store
        self._bus = bus
        self._budgets = BudgetWatch(worker)
        self._now_us = now_us
        self.flow = Flow() if flow is None else flow
        self.report = Report()  # of the last beat
        self.is_informed = False  # it has heard what operators and breakers say; before that, no claim is made
        self._rested_s = self._step_s = 0.0  # since the last beat, and the pause after the last step
        self._given = queues  # as the code sets them
        self._queues = dict(queues)  # as they are served now
        self.sensors = Sensors(registry, self._queues, adapts=adapts)
        self.board = Board(store, bus, worker, downstreams, now_us)
        self.board.on_settings = self._change_queue
        self.board.on_turn = lambda: self.changed()
        self.planner = LanePlanner(list(queues.values()), rng, self._shared_limits)
        self.changed: Callable[[], None] = lambda: None

    async def beat(self) -> None:
        """Exchanges with the fleet what is new, and takes the pulse of the queues if a policy adapts to it."""
        await self.board.sync()
        self.sensors.on_downstreams(self.board.budgets())
        if self.sensors.adapts:
            self.sensors.on_pulses(await self._store.pulse(sorted(self._queues)))
        self.take_stock()
        if not self.is_informed:
            self.is_informed = True
            self.changed()

    async def keep_up(self) -> float:
        """One step of the worker's loop: a beat, unless the last one was not long ago and there is no news; when to come again."""
        self._rested_s += self._step_s
        if self._rested_s >= self.board.pause_s() or self.board.has_news():
            await self.beat()
            self._rested_s = 0.0
        self._step_s = min(PRESSING_S, self.board.pause_s())
        return self._step_s

    async def last_beat(self) -> None:
        """Tells the fleet what this worker has counted since its last beat, if the store answers; nobody else knows it."""
        if self.board.has_anything_to_say():
            with suppress(StoreError):
                await self.board.sync()
        self.take_stock()

    def learn(self, asks: Sequence[Ask], claimed: Claimed) -> None:
        """Takes in what a claim's answer tells beyond its jobs."""
        self.planner.learn(asks, claimed)
        if claimed.levels:
            self.sensors.on_levels(claimed.levels, claimed.now_us)
            self.flow.saw_levels(claimed.levels)
            kept = {id(ask.limits): ask.limits for ask in asks}  # the asks of a queue share theirs
            buckets = (limit for limits in kept.values() for limit in limits if isinstance(limit, Bucket))
            self._bus.publish(self._budgets.look(claimed.levels, buckets, claimed.now_us))

    def take_stock(self) -> None:
        """Puts together what the worker reports of itself. A report is read from another thread, so it is made whole and not changed."""
        limits = {name: queue.limits for name, queue in self._queues.items()}
        kept = tuple(limit for limit in self._shared_limits() if not (isinstance(limit, Bucket) and is_of_breaker(limit)))
        self.report = Report(
            figures=self.flow.recent(self._now_us()),
            claims={name: name_of_strategy(queue.claim) for name, queue in self._queues.items()},
            limits=limits | ({"": kept} if kept else {}),
        )
        self.flow.breakers = {name: state.state for name, state in self.board.states().items()}

    def ended(self, job: Job, outcome: Outcome) -> None:
        """Counts an execution for whoever judges by many. An error that is given up for good says nothing about the downstream."""
        if type(outcome) is Succeeded:
            self.flow.ended(job, ok=True)
        elif type(outcome) is Raised:
            self.flow.ended(job, ok=False)
        else:
            return
        if job.group is None and not self.sensors.adapts:
            return
        failed = isinstance(outcome, Raised) and outcome.ruling == "retry"
        self.sensors.ended(job.queue, ok=not failed)
        if job.depends_on is not None:
            # What the downstream itself asks for is for everybody; what a handler or a policy asks for is for this job.
            retry_after_us = outcome.retry_after_us if isinstance(outcome, Raised) else None
            ok = False if failed else None if isinstance(outcome, Raised) else True
            self.board.ended(job.depends_on, ok=ok, claimed_at_us=job.updated_at_us, retry_after_us=retry_after_us)

    def _shared_limits(self) -> tuple[Limit, ...]:
        return self.sensors.task_limits() + self.board.limits()

    def _change_queue(self, name: str, text: str | None) -> None:
        """An operator has changed the settings of a queue for the whole fleet, or taken the change back (None)."""
        if name not in self._given:
            return
        try:
            queue = with_changes(self._given[name], text)
        except BadSetting as problem:
            log.error("%s; the settings it had stay in force", problem)
            return
        self._queues[name] = queue
        self.planner.change(queue)
        self.changed()
