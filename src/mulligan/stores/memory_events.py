"""The bounded event log of the memory store."""

from __future__ import annotations

from collections import deque

from msgspec.structs import replace

from mulligan.core.events import EVENT_LOG_MAX, Event, EventKind
from mulligan.core.job import Job


class EventLog:
    """Each event has the number of its place; the oldest ones fall out."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque(maxlen=EVENT_LOG_MAX)
        self._last_seq = 0

    def __len__(self) -> int:
        return len(self._events)

    def append(self, event: Event) -> None:
        self._last_seq += 1
        self._events.append(replace(event, seq=self._last_seq))

    def append_of(self, row: Job, kind: EventKind, now_us: int) -> None:
        """An event of one job."""
        self.append(Event(kind=kind, at_us=now_us, job_id=row.id, queue=row.queue, task=row.task, fence=row.fence, attempt=row.attempts))

    def read(self, after_seq: int, limit: int) -> list[Event]:
        """The events after a place, oldest first."""
        return [event for event in self._events if event.seq > after_seq][: max(0, limit)]
