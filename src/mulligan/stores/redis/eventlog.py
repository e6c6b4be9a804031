"""The store's bounded event log: what other processes and later readers see."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mulligan.core.events import EVENT_LOG_MAX, Event
from mulligan.stores.redis.layout import array_of, encode
from mulligan.stores.redis.server import Server

_event_encode = msgspec.json.Encoder().encode
_event_decoder = msgspec.json.Decoder(Event)
_entry_decoder = msgspec.msgpack.Decoder(tuple[int, int | None, str | None, int | None, str])


async def record_events(server: Server, events: Sequence[Event]) -> None:
    """Appends events to the log."""
    if events:
        await server.run("record", encode([(event.at_us, _event_encode(event).decode()) for event in events]))


async def read_events(server: Server, after_seq: int, limit: int) -> list[Event]:
    """The events after a place in the log, oldest first. One that cannot be decoded is passed over."""
    first, entries = (await server.run("events", after_seq, max(0, min(limit, EVENT_LOG_MAX)))).values
    events = []
    for seq, entry in enumerate(entries, first):
        try:
            events.append(_event_of(entry, seq))
        except (msgspec.DecodeError, UnicodeError):
            continue
    return events


def _event_of(entry: bytes, seq: int) -> Event:
    """An event with what only the verdict knew: its time, and for some kinds the fence, the reason or the next run."""
    at_us, run_at_us, reason, fence, text = _entry_decoder.decode(array_of(entry, 5))
    event = _event_decoder.decode(text)
    detail, event_fence = event.detail, event.fence
    if fence is not None and event.kind == "REQUEUED":
        event_fence = fence
    elif fence is not None and event.kind == "LEASE_LOST":
        detail = detail | {"reason": reason, "fence_now": fence}
    elif fence is not None and event.kind == "RETRY_SCHEDULED":
        detail = detail | {"run_at_us": run_at_us}
    return msgspec.structs.replace(event, at_us=at_us, fence=event_fence, detail=detail, seq=seq)
