"""The schedules of the memory store."""

from __future__ import annotations

from msgspec.structs import replace

from mulligan.core.schedule import Schedule, Tick, merged_schedule


class Schedules:
    """By name. What a tick inserts is the store's business."""

    def __init__(self) -> None:
        self._schedules: dict[str, Schedule] = {}

    def put(self, schedule: Schedule, now_us: int) -> Schedule:
        """Stores a schedule; one of the same name and interval goes on from where it stands."""
        stored = merged_schedule(self._schedules.get(schedule.name), schedule, now_us)
        self._schedules[schedule.name] = stored
        return stored

    def set_paused(self, name: str, paused: bool, now_us: int) -> bool:
        """False if there is none of that name."""
        if name not in self._schedules:
            return False
        self._schedules[name] = replace(self._schedules[name], paused=paused, updated_at_us=now_us)
        return True

    def remove(self, name: str) -> bool:
        """False if there is none of that name."""
        return self._schedules.pop(name, None) is not None

    def all(self) -> list[Schedule]:
        """By name."""
        return [self._schedules[name] for name in sorted(self._schedules)]

    def move(self, tick: Tick) -> bool:
        """Moves a schedule that still stands where the tick expects it; False otherwise."""
        schedule = self._schedules.get(tick.name)
        if schedule is None or schedule.paused or schedule.next_tick_us != tick.expected_us:
            return False
        self._schedules[tick.name] = replace(schedule, next_tick_us=tick.next_tick_us)
        return True
