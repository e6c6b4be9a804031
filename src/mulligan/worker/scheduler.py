"""The scheduler: makes one job per tick of each schedule, whatever the number of processes that run it.

Every worker runs one. A tick fires by moving the schedule's next tick and inserting the job in one guarded write, so of two
schedulers one wins. The next tick follows from the schedule alone, never from the job of the last one.
"""

from __future__ import annotations

import logging

from mulligan.core.clock import SECOND_US
from mulligan.core.contract import Store
from mulligan.core.errors import StoreError
from mulligan.core.events import Event
from mulligan.core.ids import new_id
from mulligan.core.schedule import Schedule, Tick, job_of_tick, plan_ticks
from mulligan.observe.bus import EventBus

log = logging.getLogger("mulligan.scheduler")
LOOK_S = 1.0  # longest pause between two looks at the schedules, so that new ones are seen


class Scheduler:
    """`fire_due` is one pass; it tells how long to sleep until the next."""

    def __init__(self, store: Store, bus: EventBus) -> None:
        self._store = store
        self._bus = bus

    async def fire_due(self) -> float:
        """Fires every tick that is due; returns the seconds until the next look."""
        schedules = await self._store.schedules()
        now_us = await self._store.now_us() if schedules else 0
        pause_us = int(LOOK_S * SECOND_US)
        for schedule in schedules:
            if schedule.paused:
                continue
            if schedule.next_tick_us <= now_us:
                await self._fire_one(schedule, now_us)
                pause_us = 0 if schedule.missed == "all" else min(pause_us, schedule.interval_us)
            else:
                pause_us = min(pause_us, schedule.next_tick_us - now_us)
        return max(pause_us, 1_000) / SECOND_US

    async def _fire_one(self, schedule: Schedule, now_us: int) -> None:
        """Fires one schedule. One that the store refuses is logged, and must not stand in the way of the others."""
        try:
            await self._fire(schedule, now_us)
        except StoreError as error:
            if error.retryable:
                raise
            log.error("schedule %s cannot fire: %s", schedule.name, error)

    async def _fire(self, schedule: Schedule, now_us: int) -> None:
        due, next_tick_us = plan_ticks(schedule, now_us)
        if not due:
            await self._store.fire([Tick(name=schedule.name, expected_us=schedule.next_tick_us, next_tick_us=next_tick_us, job=None)])
            return
        expected_us = schedule.next_tick_us
        ticks = []
        for position, tick_us in enumerate(due):
            after_us = due[position + 1] if position + 1 < len(due) else next_tick_us
            job = job_of_tick(schedule, tick_us, new_id(now_us))
            ticks.append(Tick(name=schedule.name, expected_us=expected_us, next_tick_us=after_us, job=job))
            expected_us = after_us
        fired = await self._store.fire(ticks)
        events = [
            Event(
                kind="ENQUEUED", at_us=now_us, job_id=tick.job.id, queue=tick.job.queue, task=tick.job.task, detail={"schedule": tick.name}
            )
            for tick, applied in zip(ticks, fired, strict=True)
            if applied and tick.job is not None
        ]
        self._bus.publish(events)
