"""The store's bounded event log: what other processes and later readers see."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mulligan.core.events import EVENT_LOG_MAX, Event, StoredForm
from mulligan.stores.sqlite.bulk import ROWS
from mulligan.stores.sqlite.hop import Transaction

_APPEND = f"INSERT INTO mulligan_events (body) SELECT column1 FROM {ROWS} WHERE column1 IS NOT NULL"
_TRIM = "DELETE FROM mulligan_events WHERE seq <= (SELECT max(seq) FROM mulligan_events) - ?"
# The bodies travel as texts inside the JSON: they hold fractions, which SQLite would print with 15 digits.
_READ = """
SELECT json_group_array(json_array(seq, body))
FROM (SELECT seq, body FROM mulligan_events WHERE seq > ? ORDER BY seq LIMIT ?)
"""

_event_encoder = msgspec.json.Encoder()
_event_decoder = msgspec.json.Decoder(Event)
_log_decoder = msgspec.json.Decoder(list[tuple[int, str]])


def append_events(transaction: Transaction, events: Sequence[Event | StoredForm]) -> None:
    """Writes events at the end of the log, and forgets the oldest beyond its bound."""
    if not events:
        return
    transaction.run_rows(_APPEND, 1, [(_event_encoder.encode(event).decode(),) for event in events])
    transaction.run(_TRIM, (EVENT_LOG_MAX,))


def read_events(transaction: Transaction, after_seq: int, limit: int) -> list[Event]:
    """The events after a place in the log, oldest first. One that cannot be decoded is passed over."""
    [text] = transaction.row(_READ, (after_seq, max(0, limit)))
    events = []
    for seq, body in _log_decoder.decode(text):
        try:
            events.append(msgspec.structs.replace(_event_decoder.decode(body), seq=seq))
        except msgspec.DecodeError:
            continue
    return events
