"""What operators set: the state of queues, and schedules with the jobs their ticks make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from mulligan.core.contract import QueueState
from mulligan.core.events import Event
from mulligan.core.job import NewJob
from mulligan.core.schedule import Schedule, Tick, merged_schedule
from mulligan.stores.sqlite.eventlog import append_events
from mulligan.stores.sqlite.hop import Transaction
from mulligan.stores.sqlite.insert import insert
from mulligan.stores.sqlite.rows import to_json

_QUEUE_PAUSED = "SELECT coalesce(max(paused), 0) FROM mulligan_queues WHERE queue = ?"
_PUT_QUEUE = """
INSERT INTO mulligan_queues (queue, paused, reason, changed_by, updated_at_us) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (queue) DO UPDATE SET paused = excluded.paused, reason = excluded.reason, changed_by = excluded.changed_by,
  updated_at_us = excluded.updated_at_us
"""
_QUEUES = "SELECT queue, paused, reason, changed_by, updated_at_us FROM mulligan_queues ORDER BY queue"

_SCHEDULES = """
SELECT name, job, interval_us, anchor_us, next_tick_us, missed, paused, updated_at_us FROM mulligan_schedules ORDER BY name
"""
_SCHEDULE = _SCHEDULES.replace("ORDER BY name", "WHERE name = ?")
_PUT_SCHEDULE = """
INSERT OR REPLACE INTO mulligan_schedules (name, job, interval_us, anchor_us, next_tick_us, missed, paused, updated_at_us)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""
_PAUSE_SCHEDULE = "UPDATE mulligan_schedules SET paused = ?, updated_at_us = ? WHERE name = ?"
_REMOVE_SCHEDULE = "DELETE FROM mulligan_schedules WHERE name = ?"
_FIRE = "UPDATE mulligan_schedules SET next_tick_us = ? WHERE name = ? AND paused = 0 AND next_tick_us = ?"

_pattern_decoder = msgspec.json.Decoder(NewJob)


def set_queue(transaction: Transaction, queue: str, paused: bool, reason: str, by: str) -> QueueState:
    """Stores a queue's settings."""
    now_us = transaction.now_us
    [was_paused] = transaction.row(_QUEUE_PAUSED, (queue,))
    transaction.run(_PUT_QUEUE, (queue, paused, reason, by, now_us))
    if paused != bool(was_paused):
        detail = {"reason": reason, "by": by}
        event = Event(kind="QUEUE_PAUSED" if paused else "QUEUE_RESUMED", at_us=now_us, queue=queue, detail=detail)
        append_events(transaction, [event])
        transaction.wakes = not paused
    return QueueState(queue=queue, paused=paused, reason=reason, by=by, updated_at_us=now_us)


def queue_states(transaction: Transaction) -> list[QueueState]:
    """All stored queue settings, by name."""
    return [
        QueueState(queue=queue, paused=bool(paused), reason=reason, by=by, updated_at_us=updated_at_us)
        for queue, paused, reason, by, updated_at_us in transaction.rows(_QUEUES)
    ]


def put_schedule(transaction: Transaction, schedule: Schedule) -> Schedule:
    """Stores a schedule; one of the same name and interval goes on from where it stands."""
    row = transaction.row(_SCHEDULE, (schedule.name,))
    stored = merged_schedule(None if row is None else _schedule_of(row), schedule, transaction.now_us)
    values = (
        stored.name,
        to_json(stored.job),
        stored.interval_us,
        stored.anchor_us,
        stored.next_tick_us,
        stored.missed,
        stored.paused,
        stored.updated_at_us,
    )
    transaction.run(_PUT_SCHEDULE, values)
    return stored


def set_schedule_paused(transaction: Transaction, name: str, paused: bool) -> bool:
    """Pauses or resumes a schedule; False if there is none of that name."""
    return transaction.run(_PAUSE_SCHEDULE, (paused, transaction.now_us, name)) == 1


def remove_schedule(transaction: Transaction, name: str) -> bool:
    """Removes a schedule, not the jobs it made; False if there is none of that name."""
    return transaction.run(_REMOVE_SCHEDULE, (name,)) == 1


def schedules(transaction: Transaction) -> list[Schedule]:
    """All schedules, by name."""
    return [_schedule_of(row) for row in transaction.rows(_SCHEDULES)]


def fire(transaction: Transaction, ticks: Sequence[Tick]) -> list[bool]:
    """Moves each schedule that still stands where the tick expects it, and inserts the tick's job in the same transaction."""
    answers = []
    for tick in ticks:
        fired = transaction.run(_FIRE, (tick.next_tick_us, tick.name, tick.expected_us)) == 1
        if fired and tick.job is not None:
            insert(transaction, [tick.job])
        answers.append(fired)
    return answers


def _schedule_of(row: Sequence[Any]) -> Schedule:
    name, job, interval_us, anchor_us, next_tick_us, missed, paused, updated_at_us = row
    return Schedule(
        name=name,
        job=_pattern_decoder.decode(job),
        interval_us=interval_us,
        anchor_us=anchor_us,
        next_tick_us=next_tick_us,
        missed=missed,
        paused=bool(paused),
        updated_at_us=updated_at_us,
    )
