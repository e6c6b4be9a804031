"""What nobody reads is not made: no event object and no log record for a job that simply runs."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mulligan.core.events import Event
from tests.conftest import BACKENDS, DURABLE, url_of
from tests.guards.scene import Scene

EVENTS_MAX = 100  # of the worker itself: that it starts and stops, and one for each claim


class CountedEvent(Event, frozen=True, gc=False, kw_only=True):
    """An event that is counted when it is made."""

    def __post_init__(self) -> None:
        made.append(self.kind)


made: list[str] = []


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds of all events that are made from now on, wherever in the package."""
    made.clear()
    for module in list(sys.modules.values()):
        if module.__name__.startswith("mulligan") and getattr(module, "Event", None) is Event:
            monkeypatch.setattr(module, "Event", CountedEvent)
    return made


@pytest.fixture
def records() -> Iterator[list[str]]:
    """The messages of all log records that are made from now on, shown or not."""
    found: list[str] = []
    factory = logging.getLogRecordFactory()

    def make(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = factory(*args, **kwargs)
        found.append(f"{record.name}: {record.msg}")
        return record

    logging.setLogRecordFactory(make)
    yield found
    logging.setLogRecordFactory(factory)


@pytest.mark.parametrize("durable", [name for name in BACKENDS if name in DURABLE])  # the memory store makes all it could have to keep
async def test_no_event_is_made_for_nobody(durable: str, tmp_path: Path, events: list[str], records: list[str]) -> None:
    """Two thousand jobs that simply succeed: some events of the worker, none of a job, and not one log record."""
    async with Scene(url_of(durable, tmp_path)) as scene:
        await scene.fill()
        events.clear()
        records.clear()
        await scene.drain()
        found = list(events)
    print(f"{durable}: {len(found)} events, {len(records)} log records")
    assert set(found) <= {"WORKER_STARTED", "WORKER_STOPPED", "CLAIM_START"}
    assert len(found) <= EVENTS_MAX
    assert records == []


async def test_events_are_made_for_a_listener(tmp_path: Path, events: list[str]) -> None:
    """The count can see them: with one subscriber each job has its events."""
    async with Scene(f"sqlite:///{tmp_path}/jobs.db") as scene:
        heard: list[str] = []
        scene.app.events.subscribe(lambda event: heard.append(event.kind), ["COMPLETED"])
        await scene.fill(100)
        await scene.drain()
    assert heard.count("COMPLETED") == 100
    assert events.count("COMPLETED") == 100
