"""Events of jobs that simply start and succeed, published as rows: nobody who listens or looks can tell the difference."""

from __future__ import annotations

import logging

import pytest

from mulligan.core.events import SUCCESS_KINDS, Event, RowKind
from mulligan.observe.bus import EventBus
from mulligan.observe.log import LogWriter
from mulligan.observe.metrics import Metrics

ROWS = [
    ("succeeded", 1_000 + number, f"job-{number}", "q" if number % 3 else "other", "work", "w", 1, 1, 500 * number) for number in range(10)
]


def published(*, listening: bool) -> tuple[list[Event], list[Event], dict[str, object]]:
    """What is heard, what the ring shows and what is counted, with or without somebody who listens."""
    bus, metrics, heard = EventBus(), Metrics(), list[Event]()
    bus.measure(metrics)
    if listening:
        bus.subscribe(heard.append, ["LOCK_RELEASE", "COMPLETED"])
    bus.publish([Event(kind="ENQUEUED", at_us=1, queue="q")])
    bus.publish_rows([("claimed", *row[1:8]) for row in ROWS])
    bus.publish_rows(ROWS)
    return heard, bus.recent(100), metrics.snapshot()


def test_rows_and_events_are_the_same_to_whoever_looks() -> None:
    """The ring and the counters are the same whether the events were made at once or only now."""
    heard, ring, counted = published(listening=True)
    assert published(listening=False) == ([], ring, counted)
    assert [event for event in ring if event.kind in SUCCESS_KINDS] == heard
    assert [event.kind for event in ring[-4:]] == ["COMPLETED", "LOCK_RELEASE"] * 2
    assert (ring[-2].job_id, ring[-2].ran_us, ring[-2].fence, ring[-2].queue) == ("job-9", 4_500, 1, "other")
    assert (counted["claimed"], counted["completed"], counted["submitted"]) == (10, 10, 1)
    assert counted["queues"] == {"q": {"submitted": 1, "claimed": 6, "completed": 6}, "other": {"claimed": 4, "completed": 4}}
    assert counted["execution"]["count"] == 10  # type: ignore[index]


def noted_bus() -> tuple[EventBus, list[int]]:
    """A bus with one kind of row, and the rows that were made into events."""
    made = list[int]()

    def make(number: int) -> tuple[Event]:
        made.append(number)
        return (Event(kind="PROCESSING", at_us=number),)

    return EventBus(row_kinds={"a start": RowKind(("PROCESSING",), make)}), made


def test_no_event_is_made_that_nobody_wants() -> None:
    """Without a listener `make` is not called until somebody looks."""
    bus, made = noted_bus()
    bus.publish_rows([("a start", 1), ("a start", 2)])
    bus.publish_rows([])
    assert made == []
    assert [event.at_us for event in bus.recent(10)] == [1, 2]
    assert made == [1, 2]


def test_a_listener_of_another_kind_changes_nothing_and_one_that_leaves_neither() -> None:
    """Only those who listen to one of the kinds cause events to be made; after they left, none are made."""
    (bus, made), heard = noted_bus(), list[Event]()
    bus.subscribe(heard.append, ["FAILED"])
    leave = bus.subscribe(heard.append, ["PROCESSING"])
    bus.publish_rows([("a start", 1)])
    leave()
    bus.publish_rows([("a start", 2)])
    assert (made, [event.at_us for event in heard]) == ([1], [1])


def test_the_log_listens_to_plain_starts_only_where_details_are_wanted(caplog: pytest.LogCaptureFixture) -> None:
    """A fresh job's start has a line at the level DEBUG, and costs nothing above it."""
    bus, writer = EventBus(), LogWriter()
    bus.subscribe(writer.on_event, writer.kinds, listens_to_rows=writer.listens_to_rows)
    row = ("started", 1, "job-1", "q", "work", "w", 1, 1)
    with caplog.at_level(logging.INFO, "mulligan.jobs"):
        bus.publish_rows([row])
        assert caplog.text == ""
    with caplog.at_level(logging.DEBUG, "mulligan.jobs"):
        bus.publish_rows([row])
        assert "Processing regular job: work job-1" in caplog.text
