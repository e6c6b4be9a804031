"""The store's bounded event log: what other processes and later readers see."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mulligan.core.events import EVENT_LOG_MAX, Event
from mulligan.stores.postgres.database import Database
from mulligan.stores.postgres.leases import ADD_EVENTS
from mulligan.stores.postgres.rows import to_json

_READ = "SELECT seq, body FROM {s}.events WHERE seq > $1 ORDER BY seq LIMIT $2"

_event_decoder = msgspec.json.Decoder(Event)


async def record_events(database: Database, events: Sequence[Event]) -> None:
    """Writes events at the end of the log, and forgets the oldest beyond its bound."""
    if events:
        await database.rows(ADD_EVENTS, [to_json(event) for event in events], EVENT_LOG_MAX)


async def read_events(database: Database, after_seq: int, limit: int) -> list[Event]:
    """The events after a place in the log, oldest first. One that cannot be decoded is passed over."""
    events = []
    for seq, body in await database.rows(_READ, after_seq, max(0, limit)):
        try:
            events.append(msgspec.structs.replace(_event_decoder.decode(body), seq=seq))
        except msgspec.DecodeError:
            continue
    return events
