"""What operators set: the state of queues, and schedules with the jobs their ticks make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from mulligan.core.contract import QueueState
from mulligan.core.events import Event
from mulligan.core.job import NewJob
from mulligan.core.schedule import Schedule, Tick, merged_schedule
from mulligan.stores.postgres.database import Database, Transaction
from mulligan.stores.postgres.entries import ADD_EVENTS, entries_of
from mulligan.stores.postgres.insert import insert_within
from mulligan.stores.postgres.rows import to_json

_NOW = "SELECT {s}.now_us($1)"
# Two that set one name at the same time take turns; there may be no row yet to lock.
_TURN = "SELECT pg_advisory_xact_lock(hashtextextended('mulligan setting {s} ' || $1, 0))"
_QUEUE_PAUSED = "SELECT coalesce(bool_or(paused), false) FROM {s}.queues WHERE queue = $1"
_PUT_QUEUE = """
INSERT INTO {s}.queues (queue, paused, reason, changed_by, updated_at_us) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (queue) DO UPDATE SET paused = excluded.paused, reason = excluded.reason, changed_by = excluded.changed_by,
  updated_at_us = excluded.updated_at_us
"""
_QUEUES = "SELECT queue, paused, reason, changed_by, updated_at_us FROM {s}.queues ORDER BY queue"

_SCHEDULES = """
SELECT name, job, interval_us, anchor_us, next_tick_us, missed, paused, updated_at_us FROM {s}.schedules ORDER BY name
"""
_SCHEDULE = """
SELECT name, job, interval_us, anchor_us, next_tick_us, missed, paused, updated_at_us FROM {s}.schedules WHERE name = $1 FOR UPDATE
"""
_PUT_SCHEDULE = """
INSERT INTO {s}.schedules (name, job, interval_us, anchor_us, next_tick_us, missed, paused, updated_at_us)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (name) DO UPDATE SET job = excluded.job, interval_us = excluded.interval_us, anchor_us = excluded.anchor_us,
  next_tick_us = excluded.next_tick_us, missed = excluded.missed, paused = excluded.paused, updated_at_us = excluded.updated_at_us
"""
_PAUSE_SCHEDULE = "UPDATE {s}.schedules SET paused = $2, updated_at_us = {s}.now_us($3) WHERE name = $1 RETURNING 1"
_REMOVE_SCHEDULE = "DELETE FROM {s}.schedules WHERE name = $1 RETURNING 1"
_LOCK_SCHEDULES = "SELECT 1 FROM {s}.schedules WHERE name = ANY ($1::text[]) ORDER BY name FOR UPDATE"
_FIRE = "UPDATE {s}.schedules SET next_tick_us = $1 WHERE name = $2 AND NOT paused AND next_tick_us = $3 RETURNING 1"

_pattern_decoder = msgspec.json.Decoder(NewJob)


async def set_queue(database: Database, queue: str, paused: bool, reason: str, by: str) -> tuple[QueueState, bool]:
    """Stores a queue's settings; also, whether it was resumed."""
    given_us = database.now_us()

    async def work(transaction: Transaction) -> tuple[QueueState, bool]:
        await transaction.rows(_TURN, f"queue {queue}")
        now_us: int = await transaction.value(_NOW, given_us)
        changed = paused != await transaction.value(_QUEUE_PAUSED, queue)
        await transaction.rows(_PUT_QUEUE, queue, paused, reason, by, now_us)
        if changed:
            detail = {"reason": reason, "by": by}
            event = Event(kind="QUEUE_PAUSED" if paused else "QUEUE_RESUMED", at_us=now_us, queue=queue, detail=detail)
            await transaction.rows(ADD_EVENTS, *entries_of([event]))
        return QueueState(queue=queue, paused=paused, reason=reason, by=by, updated_at_us=now_us), changed and not paused

    return await database.within(work)


async def queue_states(database: Database) -> list[QueueState]:
    """All stored queue settings, by name."""
    return [
        QueueState(queue=queue, paused=paused, reason=reason, by=by, updated_at_us=updated_at_us)
        for queue, paused, reason, by, updated_at_us in await database.rows(_QUEUES)
    ]


async def put_schedule(database: Database, schedule: Schedule) -> Schedule:
    """Stores a schedule; one of the same name and interval goes on from where it stands."""
    given_us = database.now_us()

    async def work(transaction: Transaction) -> Schedule:
        await transaction.rows(_TURN, f"schedule {schedule.name}")
        row = await transaction.row(_SCHEDULE, schedule.name)
        now_us: int = await transaction.value(_NOW, given_us)
        stored = merged_schedule(None if row is None else _schedule_of(row), schedule, now_us)
        await transaction.rows(
            _PUT_SCHEDULE,
            stored.name,
            to_json(stored.job),
            stored.interval_us,
            stored.anchor_us,
            stored.next_tick_us,
            stored.missed,
            stored.paused,
            stored.updated_at_us,
        )
        return stored

    return await database.within(work)


async def set_schedule_paused(database: Database, name: str, paused: bool) -> bool:
    """Pauses or resumes a schedule; False if there is none of that name."""
    return bool(await database.rows(_PAUSE_SCHEDULE, name, paused, database.now_us()))


async def remove_schedule(database: Database, name: str) -> bool:
    """Removes a schedule, not the jobs it made; False if there is none of that name."""
    return bool(await database.rows(_REMOVE_SCHEDULE, name))


async def schedules(database: Database) -> list[Schedule]:
    """All schedules, by name."""
    return [_schedule_of(row) for row in await database.rows(_SCHEDULES)]


async def fire(database: Database, ticks: Sequence[Tick]) -> list[bool]:
    """Moves each schedule that still stands where the tick expects it, and inserts the tick's job in the same transaction."""
    given_us = database.now_us()

    async def work(transaction: Transaction) -> list[bool]:
        await transaction.rows(_LOCK_SCHEDULES, sorted({tick.name for tick in ticks}))
        now_us: int = await transaction.value(_NOW, given_us)
        answers = []
        for tick in ticks:
            fired = bool(await transaction.rows(_FIRE, tick.next_tick_us, tick.name, tick.expected_us))
            if fired and tick.job is not None:
                await insert_within(transaction, [tick.job], now_us)
            answers.append(fired)
        return answers

    return await database.within(work) if ticks else []


def _schedule_of(row: Sequence[Any]) -> Schedule:
    name, job, interval_us, anchor_us, next_tick_us, missed, paused, updated_at_us = row
    return Schedule(
        name=name,
        job=_pattern_decoder.decode(job),
        interval_us=interval_us,
        anchor_us=anchor_us,
        next_tick_us=next_tick_us,
        missed=missed,
        paused=paused,
        updated_at_us=updated_at_us,
    )
