"""Claiming by hand: the same strategy, limits and breakers as in a worker, one claim at a time."""

from __future__ import annotations

import os
import socket
from contextlib import suppress

from mulligan.core.clock import Clock
from mulligan.core.errors import StoreError
from mulligan.core.ids import new_id
from mulligan.lease import Lease
from mulligan.policy.queues import Queue
from mulligan.worker.conditions import Conditions
from mulligan.worker.equipment import Equipment
from mulligan.worker.policies import Policies

QUEUES_MAX = 1_000  # what is known of so many is kept; the one that was met first is forgotten for the next


class ManualClaims:
    """What `app.claim` keeps between two claims: per queue, whose turn it is and what the fleet has told."""

    def __init__(self, kit: Equipment, clock: Clock) -> None:
        self._kit = kit
        self._clock = clock
        self._owner = f"manual:{socket.gethostname()[:60]}:{os.getpid()}"
        self._now_us = 0  # the store's time at the last claim: breakers go by it, not by this host's clock
        self._conditions: dict[str, Conditions] = {}

    async def claim(self, queue: str, limit: int, lease_us: int) -> list[Lease]:
        """Up to `limit` due jobs of the queue, under a lease each."""
        self._now_us = await self._kit.store.now_us()
        conditions = self._for(queue)
        await conditions.beat()
        asks = conditions.planner.asks(limit)
        claimed = await self._kit.store.claim(new_id(self._clock.now_us()), self._owner, asks, limit, lease_us)
        conditions.learn(asks, claimed)
        for job in claimed.jobs:
            conditions.flow.started(job, claimed.now_us)
        policies = Policies(self._kit.registry, self._kit.queues, self._kit.policy)
        if not conditions.sensors.adapts and any(policies.for_job(job).adaptive for job in claimed.jobs):
            conditions.sensors.adapts = True  # each claim takes the pulse from now on; this one has begun too soon for it
            with suppress(StoreError):  # the jobs are claimed, and have to be handed over
                conditions.sensors.on_pulses(await self._kit.store.pulse([queue]))
        return [
            Lease(
                job,
                lease_us,
                store=self._kit.store,
                bus=self._kit.bus,
                policy_of=policies.for_job,
                rng=self._kit.rng,
                clock=self._clock,
                conditions=conditions,
            )
            for job in conditions.planner.interleave(claimed.jobs, claimed.held_back)
        ]

    def _for(self, queue: str) -> Conditions:
        if queue not in self._conditions:
            kit = self._kit
            if len(self._conditions) >= QUEUES_MAX:
                del self._conditions[next(iter(self._conditions))]
            self._conditions[queue] = Conditions(
                kit.store,
                kit.bus,
                self._owner,
                registry=kit.registry,
                queues={queue: kit.queues.get(queue) or Queue(queue)},
                downstreams=kit.downstreams,
                adapts=False,
                now_us=lambda: self._now_us,
                rng=kit.rng,
                flow=kit.flow,
            )
        return self._conditions[queue]
