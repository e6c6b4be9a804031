from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mulligan.core.clock import us_to_datetime
from mulligan.core.codec import encode_payload
from mulligan.core.job import LIVE, STATUSES, ErrorInfo, HistoryRecord, Job, Lane, Status

NOW_US = 1_700_000_000_000_000


def job(**fields: Any) -> Job:
    """A pending, fresh job that is due now."""
    base = Job(
        id="j",
        queue="q",
        task="t",
        payload=encode_payload([1, "a"], {"k": None}),
        policy="{}",
        max_retries=3,
        priority=0,
        lane="fresh",
        status="pending",
        run_at_us=NOW_US,
        created_at_us=NOW_US - 5,
        updated_at_us=NOW_US - 4,
        finished_at_us=None,
        due_first_us=NOW_US,
        due_us=NOW_US,
        attempts=0,
        failures=0,
        crashes=0,
        snoozes=0,
        releases=0,
        generation=1,
        timeout_us=None,
        max_age_us=None,
        fence=0,
        claim_id=None,
        settle_id=None,
        lease_owner=None,
        lease_expires_at_us=None,
        last_delay_us=None,
        last_error=None,
        result_json=None,
        schedule=None,
        tick_us=None,
        unique_key=None,
        concurrency_key=None,
        fair_key=None,
        group=None,
        tags=(),
        trace=None,
        cancel_requested=False,
        read_at_us=NOW_US,
    )
    return replace(base, **fields)


@pytest.mark.parametrize(
    "status, lane, run_at_us, lease_us, expected",
    [
        ("pending", "fresh", NOW_US, None, "ready"),
        ("pending", "retry", NOW_US, None, "ready"),
        ("pending", "fresh", NOW_US + 1, None, "scheduled"),
        ("pending", "retry", NOW_US + 1, None, "backing off"),
        ("processing", "fresh", None, NOW_US + 1, "processing"),
        ("processing", "fresh", None, NOW_US, "stuck"),
        ("done", "fresh", None, None, "done"),
        ("failed", "retry", None, None, "failed"),
        ("cancelled", "fresh", None, None, "cancelled"),
    ],
)
def test_view_is_derived(status: Status, lane: Lane, run_at_us: int | None, lease_us: int | None, expected: str) -> None:
    """People read scheduled, ready, backing off and stuck; stored are five statuses."""
    assert job(status=status, lane=lane, run_at_us=run_at_us, lease_expires_at_us=lease_us).view == expected


def test_next_retry_is_only_that_of_a_retry_to_come() -> None:
    """A fresh job, and a retry that is ready, have none (M01)."""
    assert job(lane="retry", run_at_us=NOW_US + 5).next_retry_at == us_to_datetime(NOW_US + 5)
    assert job(lane="retry", run_at_us=NOW_US).next_retry_at is None
    assert job(lane="fresh", run_at_us=NOW_US + 5).next_retry_at is None
    assert job(lane="retry", status="processing", run_at_us=None).next_retry_at is None


@pytest.mark.parametrize(
    "max_retries, attempts, retries, remaining",
    [(3, 0, 0, 3), (3, 1, 0, 3), (3, 2, 1, 2), (3, 4, 3, 0), (3, 9, 8, 0), (0, 0, 0, 0), (0, 1, 0, 0), (None, 7, 6, None)],
)
def test_retries_are_executions_beyond_the_first(max_retries: int | None, attempts: int, retries: int, remaining: int | None) -> None:
    """N retries mean N+1 executions; None is unlimited (O02, O12)."""
    one = job(max_retries=max_retries, attempts=attempts)
    assert (one.retries, one.remaining_retries) == (retries, remaining)


def test_times_and_spans_are_shown_as_people_write_them() -> None:
    """Aware datetimes and seconds stand beside the stored microseconds; absent stays absent."""
    one = job(finished_at_us=1, lease_expires_at_us=2, tick_us=3, timeout_us=1_500_000, max_age_us=2_000_000, last_delay_us=250_000)
    assert (one.finished_at, one.lease_expires_at, one.tick) == (us_to_datetime(1), us_to_datetime(2), us_to_datetime(3))
    assert (one.run_at, one.created_at, one.updated_at) == (us_to_datetime(NOW_US), us_to_datetime(NOW_US - 5), us_to_datetime(NOW_US - 4))
    assert (one.due_first, job(due_us=NOW_US + 7).due_at) == (us_to_datetime(NOW_US), us_to_datetime(NOW_US + 7))
    assert (one.timeout, one.max_age, one.last_delay) == (1.5, 2.0, 0.25)
    bare = job(run_at_us=None)
    assert (bare.run_at, bare.finished_at, bare.lease_expires_at, bare.tick) == (None,) * 4
    assert (bare.timeout, bare.max_age, bare.last_delay) == (None,) * 3


def test_payload_and_result_are_decoded_on_demand() -> None:
    """Storage carries texts; the value decodes them."""
    one = job(result_json='{"a":[1]}')
    assert (one.args, one.kwargs, one.result) == ([1, "a"], {"k": None}, {"a": [1]})
    assert job().result is None


def test_idempotency_key_is_stable_over_attempts_and_new_per_generation() -> None:
    """Attempts share it, a requeue starts a new one."""
    assert job(attempts=1).idempotency_key == job(attempts=3, fence=9).idempotency_key == "j:1"
    assert job(generation=2).idempotency_key == "j:2"


def test_retry_is_a_lane() -> None:
    """Fresh or retry is stored, not guessed from counters."""
    assert job(lane="retry").is_retry
    assert not job(lane="fresh", failures=3).is_retry


def test_live_statuses() -> None:
    """Pending and processing are live, the rest are at rest."""
    assert set(STATUSES) - LIVE == {"done", "failed", "cancelled"}


def test_history_and_error_times_are_moments() -> None:
    """The small values show datetimes and seconds too."""
    record = HistoryRecord(generation=1, fence=1, attempt=1, outcome="failure", started_at_us=1, ended_at_us=2, delay_us=500_000)
    assert (record.started_at, record.ended_at, record.delay) == (us_to_datetime(1), us_to_datetime(2), 0.5)
    bare = HistoryRecord(generation=1, fence=1, attempt=1, outcome="failure")
    assert (bare.started_at, bare.ended_at, bare.delay) == (None, None, None)
    assert ErrorInfo(type="E", message="", at_us=3).at == us_to_datetime(3)
    assert ErrorInfo(type="E", message="").at is None


def test_values_are_frozen() -> None:
    """A value that crossed the storage line cannot be changed under anybody's hands."""
    with pytest.raises(AttributeError):
        job().status = "done"  # type: ignore[misc]
