"""What operators set: the state of queues, and schedules with the jobs their ticks make."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mulligan.core.contract import QueueState
from mulligan.core.errors import StoreUnavailable
from mulligan.core.events import Event
from mulligan.core.schedule import Schedule, Tick, merged_schedule
from mulligan.stores.redis.layout import array_of, encode
from mulligan.stores.redis.newjobs import argument, new_rows
from mulligan.stores.redis.server import Server

TRIES = 20  # to store a schedule that others store at the same time

_queue_decoder = msgspec.msgpack.Decoder(tuple[int, str])
_schedule_decoder = msgspec.msgpack.Decoder(tuple[int, bool, int, str])
_state_decoder = msgspec.json.Decoder(QueueState)
_pattern_decoder = msgspec.json.Decoder(Schedule)


async def set_queue(server: Server, queue: str, paused: bool, reason: str, by: str) -> tuple[QueueState, bool]:
    """Stores a queue's settings; also whether its pause began or ended."""
    state = QueueState(queue=queue, paused=paused, reason=reason, by=by)
    event = Event(kind="QUEUE_PAUSED" if paused else "QUEUE_RESUMED", at_us=0, queue=queue, detail={"reason": reason, "by": by})
    answer = await server.run("queue", queue, int(paused), msgspec.json.encode(state), encode(event))
    return msgspec.structs.replace(state, updated_at_us=answer.now_us), bool(answer.values[0])


async def queue_states(server: Server) -> list[QueueState]:
    """All stored queue settings, by name."""
    [flat] = (await server.run("list", "queues")).values
    states = []
    for text in flat[1::2]:
        updated_at_us, state = _queue_decoder.decode(array_of(text, 2))
        states.append(msgspec.structs.replace(_state_decoder.decode(state), updated_at_us=updated_at_us))
    return sorted(states, key=lambda state: state.queue)


async def put_schedule(server: Server, schedule: Schedule) -> Schedule:
    """Stores a schedule; one of the same name and interval goes on from where it stands."""
    for _ in range(TRIES):
        answer = await server.run("list", "schedules")
        flat = answer.values[0]
        known = dict(zip(flat[::2], flat[1::2], strict=True)).get(schedule.name.encode(), b"")
        stored = merged_schedule(_schedule_of(known) if known else None, schedule, answer.now_us)
        values = (stored.next_tick_us, int(stored.paused), stored.updated_at_us, msgspec.json.encode(stored))
        if (await server.run("schedule", schedule.name, known, *values)).values[0]:
            return stored
    raise StoreUnavailable(f"schedule {schedule.name} is being changed by others all the time; try again")


async def set_schedule_paused(server: Server, name: str, paused: bool) -> bool:
    """Pauses or resumes a schedule; False if there is none of that name."""
    return bool((await server.run("pause", name, int(paused))).values[0])


async def remove_schedule(server: Server, name: str) -> bool:
    """Removes a schedule, not the jobs it made; False if there is none of that name."""
    return bool((await server.run("pause", name, "remove")).values[0])


async def schedules(server: Server) -> list[Schedule]:
    """All schedules, by name."""
    [flat] = (await server.run("list", "schedules")).values
    return sorted((_schedule_of(text) for text in flat[1::2]), key=lambda schedule: schedule.name)


async def fire(server: Server, ticks: Sequence[Tick]) -> list[bool]:
    """Moves each schedule that still stands where the tick expects it, and inserts the tick's job in the same script."""
    jobs = [False if tick.job is None else argument(new_rows([tick.job])) for tick in ticks]
    rows = [(tick.name, tick.expected_us, tick.next_tick_us, job) for tick, job in zip(ticks, jobs, strict=True)]
    return [bool(fired) for fired in (await server.run("fire", encode(rows))).values[0]]


def _schedule_of(text: bytes) -> Schedule:
    next_tick_us, paused, updated_at_us, rest = _schedule_decoder.decode(array_of(text, 4))
    pattern = _pattern_decoder.decode(rest)
    return msgspec.structs.replace(pattern, next_tick_us=next_tick_us, paused=paused, updated_at_us=updated_at_us)
