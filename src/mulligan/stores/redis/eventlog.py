"""The store's bounded event log: what other processes and later readers see.

It is a stream (lua/log.lua). All events of one script are one entry: an array of items, each a row that stands for the events of a failure
that is tried again (core/events.RowKind), or an event with what only the script knew of it: why it was refused, and the fence. Times are
those of the entry, where it has one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec

from mulligan.core.change import Change, Verdict
from mulligan.core.events import EVENT_LOG_MAX, ROW_KINDS, STORED_KINDS, Event, row_of, stored_events_of
from mulligan.core.job import Status
from mulligan.stores.redis.layout import encode
from mulligan.stores.redis.server import Server

_RETRIED = "retried"
_EVENTS_OF_ROW = sum(kind in STORED_KINDS for kind in ROW_KINDS[_RETRIED].kinds)
_RETRIED_ROW = tuple[
    Literal["retried"], int, str, str, str, str, int, int, int, str, str, str, str | None, str, int, int, int, int | None
]  # fmt: skip
_DELAY = -4  # the place of the wait in such a row; the last value is the time when it ends, which is made from it
_entry_decoder = msgspec.msgpack.Decoder(list[msgspec.Raw])
_item_decoder = msgspec.msgpack.Decoder(tuple[Event, str | None, int | None])
_row_decoder = msgspec.msgpack.Decoder(_RETRIED_ROW)
_TRIPLE = 0x93  # how an item begins that is no row


def entry_of(changes: Sequence[Change]) -> tuple[bytes, int]:
    """The entry for changes that all end as planned, and how many events it holds."""
    items: list[Any] = []
    rows = 0
    for change in changes:
        if change.cause == "success":
            continue  # kept by no log
        verdict = _planned(change, change.status)
        row = row_of(change, verdict)
        if row is None:
            items += [(event, None, None) for event in stored_events_of(change, verdict)]
        else:
            items.append(row)
            rows += 1
    return encode(items), len(items) + rows * (_EVENTS_OF_ROW - 1)


def events_if(change: Change, status: Status | None) -> list[bytes]:
    """The events to be logged should the change end so (None: refused), one by one. The log's reader adds what only the script knew."""
    if change.cause == "success" and status is not None:
        return []
    return [encode(event) for event in stored_events_of(change, _planned(change, status))]


def _planned(change: Change, status: Status | None) -> Verdict:
    """A verdict that tells the next run by the wait before it."""
    run_at_us = change.delay_us if status == "pending" else None
    return Verdict(job_id=change.job_id, applied=status is not None, status=status, run_at_us=run_at_us)


async def record_events(server: Server, events: Sequence[Event]) -> None:
    """Appends events to the log."""
    if events:
        await server.run("record", encode([(event, None, None) for event in events]), len(events))


async def read_events(server: Server, after_seq: int, limit: int) -> list[Event]:
    """The events after a place in the log, oldest first. One that cannot be decoded is passed over."""
    limit = max(0, min(limit, EVENT_LOG_MAX))
    while True:
        first, entries = (await server.run("events", after_seq, limit)).values
        found = (event for last, at_us, entry in entries for event in _events_of(entry, at_us, last))
        page = [event for event in found if event.seq >= first][:limit]
        if page or not entries:
            return page
        after_seq = entries[-1][0]  # none of these can be decoded


def _events_of(entry: bytes, at_us: int, last: int) -> Iterator[Event]:
    try:
        items = _entry_decoder.decode(entry)
    except msgspec.DecodeError:
        return
    widths = [1 if memoryview(item)[0] == _TRIPLE else _EVENTS_OF_ROW for item in items]
    seq = last - sum(widths) + 1
    for item, width in zip(items, widths, strict=True):
        try:
            events = [_event_of(item, at_us)] if width == 1 else _retried(item, at_us)
        except (msgspec.DecodeError, UnicodeError):
            events = []
        for place, event in enumerate(events):
            yield msgspec.structs.replace(event, seq=seq + place)
        seq += width


def _retried(item: msgspec.Raw, at_us: int) -> list[Event]:
    row = _row_decoder.decode(item)
    made = ROW_KINDS[row[0]].make(at_us, *row[2:-1], at_us + row[_DELAY])
    return [event for event in made if event.kind in STORED_KINDS]


def _event_of(item: msgspec.Raw, at_us: int) -> Event:
    event, reason, fence = _item_decoder.decode(item)
    detail, event_fence = event.detail, event.fence
    if fence is not None and event.kind == "REQUEUED":
        event_fence = fence
    elif fence is not None and event.kind == "LEASE_LOST":
        detail = detail | {"reason": reason, "fence_now": fence}
    elif event.kind == "RETRY_SCHEDULED" and detail.get("run_at_us") is not None:
        detail = detail | {"run_at_us": at_us + detail["run_at_us"]}
    return msgspec.structs.replace(event, at_us=at_us or event.at_us, fence=event_fence, detail=detail)
