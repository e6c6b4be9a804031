"""Events of jobs that simply start and succeed, published as rows: nobody who listens or looks can tell the difference."""

from __future__ import annotations

import logging

import pytest

from mulligan.core.events import ROW_KINDS, Event, RowKind
from mulligan.observe.bus import EventBus
from mulligan.observe.log import LogWriter
from mulligan.observe.metrics import Metrics
from mulligan.observe.retry_rate import RetryRateAlarm

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
    assert [event for event in ring if event.kind in ROW_KINDS["succeeded"].kinds] == heard
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


def test_one_of_two_listeners_leaves_and_the_other_hears_on() -> None:
    """Each subscription has an ear of its own, so that nobody goes deaf with another."""
    (bus, _), heard = noted_bus(), list[Event]()
    leave = bus.subscribe(lambda _event: None)
    bus.subscribe(heard.append)
    leave()
    bus.publish_rows([("a start", 1)])
    assert [event.at_us for event in heard] == [1]


FAILED_TWICE = [
    ("restarted", 5, "job-1", "q", "work", "w", 2, 2, 3),
    ("retried", 9, "job-1", "q", "work", "w", 2, 2, 4_000, "failure", "ValueError", "no", "f00", "failure 2", 500_000, 2, 0, 500_009),
    ("succeeded", 9, "job-2", "q", "work", "w", 1, 1, 2_000),
    ("retried", 9, "job-3", "p", "work", "w", 1, 1, 1_000, "failure", "ValueError", "no", "f00", "failure 1", 500_000, 1, 0, 500_009),
]


def test_rows_of_several_kinds_keep_their_order_and_are_counted_as_events_are() -> None:
    """A batch of failures and successes: the ring, the counters and the alarm are the same whether or not somebody listens."""
    seen = []
    for listening in (False, True):
        bus, metrics, alarm, heard = EventBus(), Metrics(), RetryRateAlarm(retries_max=1), list[Event]()
        bus.measure(metrics)
        bus.measure(alarm)
        if listening:
            bus.subscribe(heard.append)
        bus.publish_rows(FAILED_TWICE)
        assert not listening or heard == bus.recent(100)
        seen.append((bus.recent(100), metrics.snapshot(), alarm._recent, alarm._quiet_until))
    assert seen[0] == seen[1]
    ring, counted, _, quiet = seen[0]
    assert [(event.kind, event.job_id) for event in ring] == [
        ("PROCESSING", "job-1"),
        *((kind, "job-1") for kind in ("FAILED", "RETRY_SCHEDULED", "LOCK_RELEASE")),
        *((kind, "job-2") for kind in ("COMPLETED", "LOCK_RELEASE")),
        *((kind, "job-3") for kind in ("FAILED", "RETRY_SCHEDULED", "LOCK_RELEASE")),
    ]
    assert (counted["failed"], counted["retried"], counted["completed"], counted["dead"]) == (2, 2, 1, 0)
    assert (counted["execution"]["count"], counted["execution"]["total_s"]) == (3, 0.007)
    assert (ring[0].detail["waited_s"], ring[2].detail["delay_s"], quiet) == (2e-06, 0.5, {"work": 9 + 60_000_000})


def test_the_start_of_a_retry_has_a_line_that_a_failure_to_be_tried_again_has_not(caplog: pytest.LogCaptureFixture) -> None:
    """At the level INFO the log says which retries start; above it, nothing is made for it."""
    bus, writer = EventBus(), LogWriter()
    bus.subscribe(writer.on_event, writer.kinds, listens_to_rows=writer.listens_to_rows)
    with caplog.at_level(logging.INFO, "mulligan.jobs"):
        bus.publish_row(FAILED_TWICE[0])
        bus.publish_row(FAILED_TWICE[1])
    assert caplog.messages == ["Processing RETRY job: work job-1 (attempt 2)"]
    with caplog.at_level(logging.DEBUG, "mulligan.jobs"):
        bus.publish_row(FAILED_TWICE[1])
    assert caplog.messages[-1] == "Task retry scheduled: job-1 (attempt 3) in 0.5s"
