"""Events on their way into the log: those of a write stand together in few rows, the entries.

A row for each event was a third of what the server did for a failed attempt. An entry is a list in JSON, and is named by the place of its
last event, so that each event still has a place of its own. What only the store's time tells is left out of events that are written with
their change: the entry has that time, where others have none, and whoever reads them completes them (eventlog.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mulligan.core.events import EVENT_LOG_MAX, Event, StoredForm

ADD_EVENTS = f"SELECT {{s}}.add_events(NULL, $1, $2, {EVENT_LOG_MAX})"
ENTRY_MAX = 100  # events; whoever wants one of them reads them all

_encode = msgspec.json.Encoder().encode


def entries_of(events: Sequence[Event | StoredForm]) -> tuple[list[str], list[int]]:
    """The texts of the entries, and how many events each has."""
    parts = [events[first : first + ENTRY_MAX] for first in range(0, len(events), ENTRY_MAX)]
    return [_encode(part).decode() for part in parts], [len(part) for part in parts]
