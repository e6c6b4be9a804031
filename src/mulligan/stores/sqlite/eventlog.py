"""The store's bounded event log: what other processes and later readers see.

An entry has all events of one call. Its seq is the place of the last of them, so places rise in the order in which events become
visible. Failures that are tried again stand there as rows (core/events), each of which is two events; and what was prepared before
the store's time was known takes its time from the entry.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from mulligan.core.events import EVENT_LOG_MAX, STORED_OF_RETRY, Event, Row, stored_events_of_row
from mulligan.stores.sqlite.hop import Transaction

ENTRY_MAX = 1_000  # what one entry holds at most, so that none becomes too large to be read
_TRIM_EVERY = 1_000  # events; what is beyond the bound is not shown in any case

_APPEND = """
INSERT INTO mulligan_events (seq, before_seq, at_us, body)
SELECT before_seq + ?, before_seq, ?, ? FROM (SELECT coalesce(max(seq), 0) AS before_seq FROM mulligan_events)
"""
_TRIM = "DELETE FROM mulligan_events WHERE seq <= (SELECT max(seq) FROM mulligan_events) - ?"
# From the first entry that has an event behind the wanted place and within the bound, so many events on. The bodies travel as texts
# inside the JSON: they hold fractions, which SQLite would print with 15 digits.
_READ = """
WITH start AS (
  SELECT max(coalesce(before_seq, seq - 1), after_seq) AS after_seq
  FROM mulligan_events, (SELECT max(?, max(seq) - ?) AS after_seq FROM mulligan_events) WHERE seq > after_seq ORDER BY seq LIMIT 1)
SELECT (SELECT after_seq FROM start), json_group_array(json_array(before_seq, at_us, body)) FROM (
  SELECT coalesce(before_seq, seq - 1) AS before_seq, at_us, iif(before_seq IS NULL, '[' || body || ']', body) AS body
  FROM mulligan_events, start WHERE seq > after_seq AND coalesce(before_seq, seq - 1) < after_seq + ? ORDER BY seq)
"""

_encode = msgspec.json.Encoder().encode
_entries_decoder = msgspec.json.Decoder(list[tuple[int, int | None, str]])
_body_decoder = msgspec.json.Decoder(list[Event | list[Any]])
_parts_decoder = msgspec.json.Decoder(list[msgspec.Raw])
_part_decoder = msgspec.json.Decoder(Event | list[Any])


def append_events(transaction: Transaction, events: Sequence[Event]) -> None:
    """Writes events at the end of the log, and forgets the oldest beyond its bound."""
    for at in range(0, len(events), ENTRY_MAX):
        part = events[at : at + ENTRY_MAX]
        append_entry(transaction, None, len(part), _encode(part).decode())


def entry_of(told: Sequence[Event | Row]) -> tuple[int, str]:
    """The number of events, and the text, of an entry for what an outcome of each of some jobs tells; the times are left open."""
    rows = sum(type(one) is tuple for one in told)
    return len(told) + rows * (STORED_OF_RETRY - 1), _encode(told).decode()


def append_entry(transaction: Transaction, at_us: int | None, events: int, body: str) -> None:
    """Writes an entry; None: each of its events says itself when it happened."""
    last = transaction.connection.execute(_APPEND, (events, at_us, body)).lastrowid or 0
    if last // _TRIM_EVERY != (last - events) // _TRIM_EVERY:
        transaction.run(_TRIM, (EVENT_LOG_MAX,))


def read_events(transaction: Transaction, after_seq: int, limit: int) -> list[Event]:
    """The events after a place in the log, oldest first. One that cannot be decoded is passed over."""
    limit = max(0, limit)
    while True:
        first, text = transaction.row(_READ, (after_seq, EVENT_LOG_MAX, limit))
        events: list[Event] = []
        entries = _entries_decoder.decode(text)
        for before_seq, at_us, body in entries:
            for seq, event in enumerate(_events_of(body, at_us), before_seq + 1):
                if first < seq <= first + limit and event is not None:
                    events.append(msgspec.structs.replace(event, seq=seq))
        if events or not entries or not limit:
            return events
        after_seq = first + limit  # none of these can be decoded


def _events_of(body: str, at_us: int | None) -> Iterator[Event | None]:
    """The events of an entry; None for what cannot be decoded."""
    for part in _parts_of(body):
        if isinstance(part, list):
            try:
                yield from stored_events_of_row(part, at_us or 0)
            except (TypeError, ValueError, LookupError):
                yield from [None] * STORED_OF_RETRY
        else:
            yield part if part is None or at_us is None else msgspec.structs.replace(part, at_us=at_us)


def _parts_of(body: str) -> Iterator[Event | list[Any] | None]:
    try:
        yield from _body_decoder.decode(body)
    except msgspec.DecodeError:
        yield from _sound_parts(body)


def _sound_parts(body: str) -> Iterator[Event | list[Any] | None]:
    try:
        raw = _parts_decoder.decode(body)
    except msgspec.DecodeError:
        return
    for part in raw:
        try:
            yield _part_decoder.decode(part)
        except msgspec.DecodeError:
            yield None
