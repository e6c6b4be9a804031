"""The event bus: one way out for everything that happens. Logs, metrics, dashboards and tests are subscribers."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol

from mulligan.core.events import EVENT_KINDS, ROW_KINDS, Event, EventKind, Row, RowKind

RING_MAX = 10_000
Subscriber = Callable[[Event], None]
Ear = Callable[[str], bool]  # whether somebody would do anything now with the events of a row of that name
log = logging.getLogger("mulligan.bus")


class Meter(Protocol):
    """A subscriber that only counts, and can do so without an event object for each."""

    kinds: tuple[str, ...]

    def on_event(self, event: Event) -> None: ...
    def on_rows(self, kind: str, rows: Sequence[Row]) -> None: ...


class EventBus:
    """Keeps the newest events in a bounded ring and hands each one to the subscribers of its kind, in order.

    A subscriber that raises is logged and kept: what watches the queue must never stop it.

    The events of jobs that are stored, start, succeed or are tried again are most of all events, and mostly nobody listens. They are
    published as rows (`publish_rows`): counted, kept in the ring as they are, and made into events when somebody looks. If somebody
    listens, they are made at once, and nothing is different.
    """

    def __init__(self, ring_max: int = RING_MAX, row_kinds: Mapping[str, RowKind] = ROW_KINDS) -> None:
        self._ring: deque[Event | Row] = deque(maxlen=ring_max)
        self._row_kinds = row_kinds
        self._row_ears: dict[str, tuple[Ear, ...]] = dict.fromkeys(row_kinds, ())  # of those who hear one of its kinds
        self._subscribers: dict[str, tuple[Subscriber, ...]] = dict.fromkeys(EVENT_KINDS, ())
        self._ears: dict[str, tuple[Ear, ...]] = dict.fromkeys(EVENT_KINDS, ())  # of each subscriber
        self._meters: dict[str, tuple[Meter, ...]] = dict.fromkeys(EVENT_KINDS, ())
        self._row_meters: dict[str, tuple[tuple[str, Meter], ...]] = dict.fromkeys(row_kinds, ())  # and which of its kinds each counts

    def publish(self, events: Iterable[Event]) -> None:
        """Adds the events to the ring and tells their subscribers."""
        for event in events:
            self._ring.append(event)
            for meter in self._meters[event.kind]:
                meter.on_event(event)
            for subscriber in self._subscribers[event.kind]:
                try:
                    subscriber(event)
                except Exception:
                    log.exception("an event subscriber failed on %s", event.kind)

    def publish_row(self, row: Row) -> None:
        """Publishes the events of one row (core/events)."""
        name = row[0]
        for is_listening in self._row_ears[name]:
            if is_listening(name):
                self.publish(self._events_of(row))
                return
        self._ring.append(row)
        for kind, meter in self._row_meters[name]:
            meter.on_rows(kind, (row,))

    def publish_rows(self, rows: Sequence[Row]) -> None:
        """Publishes the events of rows, in their order."""
        if len(rows) == 1:
            self.publish_row(rows[0])
            return
        names = {row[0] for row in rows}
        if any(is_listening(name) for name in names for is_listening in self._row_ears[name]):
            self.publish([event for row in rows for event in self._events_of(row)])
            return
        self._ring.extend(rows)
        for name in names:
            alike = rows if len(names) == 1 else [row for row in rows if row[0] == name]
            for kind, meter in self._row_meters[name]:
                meter.on_rows(kind, alike)

    def measure(self, meter: Meter) -> None:
        """Adds a meter to the kinds it counts."""
        for kind in meter.kinds:
            self._meters[kind] = (*self._meters[kind], meter)
        for name, (kinds, _) in self._row_kinds.items():
            self._row_meters[name] = tuple((kind, one) for kind in kinds for one in self._meters[kind])

    def subscribe(
        self, subscriber: Subscriber, kinds: Iterable[str] = EVENT_KINDS, *, listens_to_rows: Ear = lambda _name: True
    ) -> Callable[[], None]:
        """Adds a subscriber, to all kinds or to some; the returned function removes it again.

        `listens_to_rows` tells whether it would do anything now with the events of such a row (core/events.ROW_KINDS).
        """
        wanted = tuple(kinds)
        ear = partial(listens_to_rows)  # of this subscription alone, so that it can be taken away without another's
        for kind in wanted:
            self._subscribers[kind] = (*self._subscribers[kind], subscriber)
            self._ears[kind] = (*self._ears[kind], ear)
        self._find_row_ears()

        def unsubscribe() -> None:
            for kind in wanted:
                self._subscribers[kind] = tuple(one for one in self._subscribers[kind] if one is not subscriber)
                self._ears[kind] = tuple(one for one in self._ears[kind] if one is not ear)
            self._find_row_ears()

        return unsubscribe

    def recent(self, limit: int = 100, *, kind: EventKind | None = None, job_id: str | None = None) -> list[Event]:
        """The newest events that match, oldest first."""
        events = (event for entry in tuple(self._ring) for event in self._events_of(entry))
        matching = [event for event in events if (kind is None or event.kind == kind) and (job_id is None or event.job_id == job_id)]
        return matching[-limit:] if limit > 0 else []

    def _events_of(self, entry: Event | Row) -> Sequence[Event]:
        return (entry,) if isinstance(entry, Event) else self._row_kinds[entry[0]].make(*entry[1:])

    def _find_row_ears(self) -> None:
        for name, (kinds, _) in self._row_kinds.items():
            self._row_ears[name] = tuple(ear for kind in kinds for ear in self._ears[kind])
