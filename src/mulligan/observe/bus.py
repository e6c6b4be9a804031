"""The event bus: one way out for everything that happens. Logs, metrics, dashboards and tests are subscribers."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable

from mulligan.core.events import EVENT_KINDS, Event, EventKind

RING_MAX = 10_000
Subscriber = Callable[[Event], None]
log = logging.getLogger("mulligan.bus")


class EventBus:
    """Keeps the newest events in a bounded ring and hands each one to the subscribers of its kind, in order.

    A subscriber that raises is logged and kept: what watches the queue must never stop it.
    """

    def __init__(self, ring_max: int = RING_MAX) -> None:
        self._ring: deque[Event] = deque(maxlen=ring_max)
        self._subscribers: dict[str, tuple[Subscriber, ...]] = dict.fromkeys(EVENT_KINDS, ())

    def publish(self, events: Iterable[Event]) -> None:
        """Adds the events to the ring and tells their subscribers."""
        for event in events:
            self._ring.append(event)
            for subscriber in self._subscribers[event.kind]:
                try:
                    subscriber(event)
                except Exception:
                    log.exception("an event subscriber failed on %s", event.kind)

    def subscribe(self, subscriber: Subscriber, kinds: Iterable[str] = EVENT_KINDS) -> Callable[[], None]:
        """Adds a subscriber, to all kinds or to some; the returned function removes it again."""
        wanted = tuple(kinds)
        for kind in wanted:
            self._subscribers[kind] = (*self._subscribers[kind], subscriber)

        def unsubscribe() -> None:
            for kind in wanted:
                self._subscribers[kind] = tuple(one for one in self._subscribers[kind] if one is not subscriber)

        return unsubscribe

    def recent(self, limit: int = 100, *, kind: EventKind | None = None, job_id: str | None = None) -> list[Event]:
        """The newest events that match, oldest first."""
        matching = [
            event for event in tuple(self._ring) if (kind is None or event.kind == kind) and (job_id is None or event.job_id == job_id)
        ]
        return matching[-limit:] if limit > 0 else []
