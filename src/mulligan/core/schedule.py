"""A schedule makes one job per tick. It is stored apart from the jobs it makes, so a retry never moves it."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from mulligan.core.clock import SECOND_US, us_to_datetime
from mulligan.core.job import NewJob

# What happens to ticks that passed while no scheduler ran.
Missed = Literal["one", "skip", "all"]
MISSED: tuple[Missed, ...] = ("one", "skip", "all")
ON_TIME_US = 60 * SECOND_US  # under "skip", a tick noticed later than this (or half its interval) counts as missed


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """An interval schedule: a tick every `interval_us` from `anchor_us` on.

    `job` is the pattern of the jobs it makes: the id, schedule and tick of each are filled in per tick.
    `next_tick_us` is the one field that moves, in the same write that inserts the tick's job.
    """

    name: str
    job: NewJob
    interval_us: int
    anchor_us: int = 0  # 0: the store's time when first put
    next_tick_us: int = 0  # 0: one interval after the anchor
    missed: Missed = "one"
    paused: bool = False
    updated_at_us: int = 0

    @property
    def next_tick(self) -> datetime:
        return us_to_datetime(self.next_tick_us)


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """The wish to fire one tick: applied only if the schedule still stands at `expected_us` and is not paused."""

    name: str
    expected_us: int  # the next_tick_us the decision was made from
    next_tick_us: int  # where the schedule stands afterwards
    job: NewJob | None  # None: the tick is passed over


def plan_ticks(schedule: Schedule, now_us: int, limit: int = 100) -> tuple[list[int], int]:
    """The ticks to fire now under the schedule's rule for missed ones, and where it stands afterwards."""
    first, interval = schedule.next_tick_us, schedule.interval_us
    if first > now_us:
        return [], first
    newest = first + (now_us - first) // interval * interval
    if schedule.missed == "all":
        ticks = list(range(first, newest + 1, interval)[:limit])
        return ticks, ticks[-1] + interval
    if schedule.missed == "skip" and now_us - newest > min(interval // 2, ON_TIME_US):
        return [], newest + interval
    return [newest], newest + interval


def job_of_tick(schedule: Schedule, tick_us: int, job_id: str) -> NewJob:
    """The job a tick makes."""
    return msgspec.structs.replace(schedule.job, id=job_id, schedule=schedule.name, tick_us=tick_us, delay_us=0, eta_us=None)


def merged_schedule(known: Schedule | None, given: Schedule, now_us: int) -> Schedule:
    """The schedule to store: an equal interval goes on from where it stands, another one starts anew; the pause stays."""
    if known is not None and known.interval_us == given.interval_us:
        return msgspec.structs.replace(
            given, anchor_us=known.anchor_us, next_tick_us=known.next_tick_us, paused=known.paused, updated_at_us=now_us
        )
    anchor_us = given.anchor_us or now_us
    next_tick_us = anchor_us + given.interval_us
    if known is None:
        return msgspec.structs.replace(given, anchor_us=anchor_us, next_tick_us=given.next_tick_us or next_tick_us, updated_at_us=now_us)
    return msgspec.structs.replace(given, anchor_us=anchor_us, next_tick_us=next_tick_us, paused=known.paused, updated_at_us=now_us)
