"""The bus and its subscribers: bounded, unbreakable, and counting right."""

from __future__ import annotations

import logging

import pytest

from mulligan.core.clock import SECOND_US
from mulligan.core.events import Event
from mulligan.observe.bus import EventBus
from mulligan.observe.log import LogWriter, one_line
from mulligan.observe.metrics import TIMER_BUCKETS_S, Metrics, Timer
from mulligan.observe.retry_rate import RetryRateAlarm


def event(kind: str, at_s: float = 0, **fields: object) -> Event:
    """An event of this kind at this second."""
    return Event(kind=kind, at_us=round(at_s * SECOND_US), **fields)  # type: ignore[arg-type]


def test_the_ring_is_bounded_and_keeps_the_newest() -> None:
    """Of more events than the ring holds, the oldest go."""
    bus = EventBus(ring_max=3)
    bus.publish([event("ENQUEUED", at_s) for at_s in range(5)])
    assert [one.at_us // SECOND_US for one in bus.recent(10)] == [2, 3, 4]


def test_recent_filters_by_kind_and_job() -> None:
    """Recent history can be replayed for one job or one kind, oldest first."""
    bus = EventBus()
    bus.publish([event("ENQUEUED", job_id="a"), event("PROCESSING", job_id="a"), event("ENQUEUED", job_id="b")])
    assert [one.job_id for one in bus.recent(kind="ENQUEUED")] == ["a", "b"]
    assert [one.kind for one in bus.recent(job_id="a")] == ["ENQUEUED", "PROCESSING"]
    assert bus.recent(0) == []


def test_a_failing_subscriber_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """A subscriber that raises is logged; the others and the publisher go on."""
    bus = EventBus()
    seen: list[str] = []

    def broken(_: Event) -> None:
        raise RuntimeError("broken watcher")

    bus.subscribe(broken)
    unsubscribe = bus.subscribe(lambda one: seen.append(one.kind), ["COMPLETED"])
    bus.publish([event("COMPLETED"), event("ENQUEUED")])
    assert seen == ["COMPLETED"]
    assert "an event subscriber failed on COMPLETED" in caplog.text
    unsubscribe()
    bus.publish([event("COMPLETED")])
    assert seen == ["COMPLETED"]


def test_counters_and_rates_follow_the_events() -> None:
    """Throughput, failure rate, retry volume and latency can be read from the snapshot (P08)."""
    metrics = Metrics()
    story: list[tuple[str, dict[str, object]]] = [
        ("ENQUEUED", {}),
        ("CLAIM_SUCCESS", {}),
        ("FAILED", {"final": False}),
        ("RETRY_SCHEDULED", {}),
        ("CLAIM_SUCCESS", {}),
        ("COMPLETED", {}),
        ("CLAIM_SUCCESS", {}),
        ("FAILED", {"final": True}),
    ]
    for kind, detail in story:
        metrics.on_event(event(kind, queue="q", ran_us=30_000, detail=detail))
    numbers = metrics.snapshot()
    assert [numbers[name] for name in ("submitted", "claimed", "completed", "failed", "retried", "dead")] == [1, 3, 1, 2, 1, 1]
    assert numbers["failure_rate"] == pytest.approx(2 / 3)
    assert numbers["execution"]["count"] == 3
    assert numbers["execution"]["p50_s"] == 0.05
    assert numbers["queues"]["q"]["dead"] == 1


def test_the_timer_puts_each_time_into_its_bucket() -> None:
    """A time on a bound counts in that bucket, one beyond all bounds in the last."""
    timer = Timer()
    assert timer.quantile(0.5) is None
    for seconds in (TIMER_BUCKETS_S[0], TIMER_BUCKETS_S[-1] * 2):
        timer.observe(seconds)
    assert (timer.counts[0], timer.counts[-1]) == (1, 1)
    assert timer.quantile(0.5) == TIMER_BUCKETS_S[0]
    assert timer.quantile(1.0) == float("inf")


def test_the_retry_alarm_warns_once_per_window(caplog: pytest.LogCaptureFixture) -> None:
    """Eleven retries of a task within a minute warn once; the next warning comes a minute later at the earliest (O13)."""
    alarm = RetryRateAlarm()
    for second in range(10):
        alarm.on_event(event("RETRY_SCHEDULED", second, task="charge"))
    assert "High retry rate" not in caplog.text
    for second in range(10, 60):
        alarm.on_event(event("RETRY_SCHEDULED", second, task="charge"))
    warnings = [record.getMessage() for record in caplog.records]
    assert warnings == ["High retry rate for charge: 11"]
    alarm.on_event(event("RETRY_SCHEDULED", 71, task="charge"))
    assert len(caplog.records) == 2


def test_a_slow_trickle_of_retries_is_no_alarm(caplog: pytest.LogCaptureFixture) -> None:
    """Retries that fall out of the window no longer count."""
    alarm = RetryRateAlarm()
    for number in range(100):
        alarm.on_event(event("RETRY_SCHEDULED", number * 6.1, task="charge"))
    assert caplog.records == []


def test_log_lines_are_one_line_without_control_characters(caplog: pytest.LogCaptureFixture) -> None:
    """An error message with newlines and terminal codes cannot forge a line or colour a terminal."""
    caplog.set_level(logging.DEBUG)
    detail = {"final": True, "error": "ValueError", "message": "a\nFORGED \x1b[31mred"}
    LogWriter().on_event(event("FAILED", job_id="1", task="t", detail=detail))
    assert any("gave up on t 1" in record.getMessage() for record in caplog.records)
    assert all("\n" not in record.getMessage() and "\x1b" not in record.getMessage() for record in caplog.records)
    assert one_line("tab\there") == "tab\\there"
