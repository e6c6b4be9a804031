"""The store's bounded event log: what other processes and later readers see."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import msgspec

from mulligan.core.clock import SECOND_US
from mulligan.core.events import EVENT_LOG_MAX, Event
from mulligan.stores.postgres.database import Database
from mulligan.stores.postgres.entries import ADD_EVENTS, entries_of

READ = "SELECT seq, many, at_us, bodies, after FROM {s}.read_events($1, $2, $3)"

_entry_decoder = msgspec.json.Decoder(list[msgspec.Raw])
_event_decoder = msgspec.json.Decoder(Event)


async def record_events(database: Database, events: Sequence[Event]) -> None:
    """Writes events at the end of the log, and forgets the oldest beyond its bound."""
    if events:
        await database.rows(ADD_EVENTS, *entries_of(events))


async def read_events(database: Database, after_seq: int, limit: int) -> list[Event]:
    """The events after a place in the log, oldest first. One that cannot be decoded is passed over."""
    limit = min(max(0, limit), EVENT_LOG_MAX)
    while True:
        events: list[Event] = []
        entries = await database.rows(READ, after_seq, limit, EVENT_LOG_MAX)
        for last, many, at_us, bodies, after in entries:
            with suppress(msgspec.DecodeError):
                for seq, body in enumerate(_entry_decoder.decode(bodies), last - many + 1):
                    if seq > after and len(events) < limit:
                        with suppress(msgspec.DecodeError):
                            events.append(_completed(_event_decoder.decode(body), seq, at_us))
        if events or not entries:
            return events
        after_seq = entries[-1][0]  # none of these can be decoded


def _completed(event: Event, seq: int, at_us: int | None) -> Event:
    """An event with its place, and with the times that were not known when it was made."""
    if at_us is None:
        return msgspec.structs.replace(event, seq=seq)
    detail = event.detail
    if event.kind == "RETRY_SCHEDULED" and isinstance(delay_s := detail.get("delay_s"), float | int):
        detail = {**detail, "run_at_us": at_us + round(delay_s * SECOND_US)}
    return msgspec.structs.replace(event, seq=seq, at_us=at_us, detail=detail)
