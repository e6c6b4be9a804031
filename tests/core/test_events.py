from __future__ import annotations

from typing import get_args

import pytest
from msgspec.json import encode
from msgspec.structs import replace

from mulligan.core.change import Cause, Change, Dead, Held, Lapsed, Verdict
from mulligan.core.events import EVENT_KINDS, STORED_KINDS, Event, StoredForm, events_of, stored_events_of, stored_forms_of
from mulligan.core.job import ErrorInfo, HistoryRecord, Status

ERROR = ErrorInfo(type="ValueError", message="m" * 300, fingerprint="f1")


def change(cause: Cause, status: Status, **fields: object) -> Change:
    """A change of a job in its third attempt under fence 5."""
    base = Change(
        job_id="j",
        queue="q",
        task="t",
        guard=Dead(1) if cause == "requeue" else Lapsed(5) if cause == "crash" else Held(5),
        settle_id="s",
        cause=cause,
        status=status,
        lane="retry",
        attempts=3,
        failures=2,
        crashes=1,
        snoozes=0,
        releases=0,
        generation=2 if cause == "requeue" else 1,
        delay_us=1_500_000 if status == "pending" else 0,
        error=ERROR,
        worker="w",
        why="because",
    )
    return replace(base, **fields)


def verdict(of: Change, status: Status | None = None) -> Verdict:
    """The store's yes to a change."""
    run_at_us = 99 if of.status == "pending" and status is None else None
    return Verdict(job_id="j", applied=True, status=status or of.status, fence=5, run_at_us=run_at_us, at_us=7)


def kinds(of: Change, status: Status | None = None) -> list[str]:
    """The kinds of the change's events, in order."""
    return [event.kind for event in events_of(of, verdict(of, status))]


ORDERS: list[tuple[Cause, Status, list[str]]] = [
    ("success", "done", ["COMPLETED", "LOCK_RELEASE"]),
    ("failure", "pending", ["FAILED", "RETRY_SCHEDULED", "LOCK_RELEASE"]),
    ("failure", "failed", ["FAILED", "LOCK_RELEASE"]),
    ("timeout", "pending", ["FAILED", "RETRY_SCHEDULED", "LOCK_RELEASE"]),
    ("timeout", "failed", ["FAILED", "LOCK_RELEASE"]),
    ("retry asked", "pending", ["FAILED", "RETRY_SCHEDULED", "LOCK_RELEASE"]),
    ("retry asked", "failed", ["FAILED", "LOCK_RELEASE"]),
    ("snooze", "pending", ["SNOOZED", "LOCK_RELEASE"]),
    ("snooze", "failed", ["FAILED", "LOCK_RELEASE"]),
    ("release", "pending", ["RELEASED", "LOCK_RELEASE"]),
    ("cancel", "cancelled", ["CANCELLED", "LOCK_RELEASE"]),
    ("crash", "pending", ["CRASHED", "RETRY_SCHEDULED", "LOCK_RELEASE"]),
    ("crash", "failed", ["CRASHED", "FAILED", "LOCK_RELEASE"]),
    ("expired", "failed", ["FAILED", "LOCK_RELEASE"]),
    ("unstorable", "failed", ["FAILED", "LOCK_RELEASE"]),
    ("requeue", "pending", ["REQUEUED"]),
]


@pytest.mark.parametrize("cause, status, expected", ORDERS)
def test_order_of_events_for_every_cause(cause: Cause, status: Status, expected: list[str]) -> None:
    """Each cause has its events in their order: a failure before the retry it causes, the lock last (P09)."""
    assert kinds(change(cause, status)) == expected


def test_every_cause_is_in_the_table() -> None:
    """A new cause needs its line above."""
    assert {cause for cause, _, _ in ORDERS} == set(get_args(Cause))


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("cause, status, _", ORDERS)
def test_what_is_stored_is_the_text_of_the_events(cause: Cause, status: Status, _: list[str], applied: bool) -> None:
    """What is made only to be written is encoded to the very text of the events that the log keeps, for every cause."""
    record = HistoryRecord(generation=1, fence=5, attempt=2, outcome=cause)
    for settled in (change(cause, status, record=record, ran_us=12), change(cause, status, error=None)):
        answer = replace(verdict(settled), applied=applied)
        events = stored_events_of(settled, answer)
        assert [encode(form) for form in stored_forms_of(settled, answer)] == [encode(event) for event in events]
        assert [event.kind for event in events_of(settled, answer) if event.kind in STORED_KINDS] == [event.kind for event in events]


def test_what_is_only_written_has_the_fields_of_an_event() -> None:
    """A failure that is tried again makes no event objects for the log, and what it makes instead lacks nothing."""
    settled = change("failure", "pending", record=HistoryRecord(generation=1, fence=5, attempt=2, outcome="failure"))
    assert {type(form) for form in stored_forms_of(settled, verdict(settled))} == {StoredForm}
    assert StoredForm.__struct_fields__ == Event.__struct_fields__


@pytest.mark.parametrize("cause", ["failure", "timeout", "retry asked", "snooze", "release", "crash"])
def test_a_cancel_that_won_is_told_as_cancelled(cause: Cause) -> None:
    """Where the store wrote cancelled instead of pending, the events tell what was written."""
    assert kinds(change(cause, "pending"), "cancelled") == ["CANCELLED", "LOCK_RELEASE"]


def test_a_refused_holder_has_lost_its_lease() -> None:
    """The event says what was wanted, why it was refused, and which fence holds the job now."""
    refused = Verdict(job_id="j", applied=False, status="processing", fence=6, reason="stale", at_us=7)
    [event] = events_of(change("success", "done"), refused)
    assert (event.kind, event.fence, event.at_us) == ("LEASE_LOST", 5, 7)
    assert event.detail == {"wanted": "done", "reason": "stale", "fence_now": 6}


@pytest.mark.parametrize("cause, status", [("crash", "pending"), ("crash", "failed"), ("requeue", "pending")])
def test_a_refused_sweeper_or_operator_is_no_event(cause: Cause, status: Status) -> None:
    """Another one was first: nothing happened here."""
    refused = Verdict(job_id="j", applied=False, status="done", fence=5, reason="stale", at_us=7)
    assert events_of(change(cause, status), refused) == []


def test_events_carry_where_and_when() -> None:
    """Every event names job, queue, task, worker, fence, attempt and the store's time."""
    record = HistoryRecord(generation=1, fence=5, attempt=2, outcome="failure")
    settled = change("failure", "pending", record=record)
    for event in events_of(settled, verdict(settled)):
        assert (event.job_id, event.queue, event.task, event.worker) == ("j", "q", "t", "w")
        assert (event.fence, event.attempt, event.at_us, event.seq) == (5, 2, 7, 0)
    assert {event.attempt for event in events_of(change("failure", "pending"), verdict(settled))} == {3}


def test_failure_detail_names_the_error_and_the_retry() -> None:
    """The message is cut, the fingerprint kept; the retry says how long and why."""
    settled = change("failure", "pending")
    failed, retry, _ = events_of(settled, verdict(settled))
    assert failed.detail == {
        "final": False,
        "cause": "failure",
        "error": "ValueError",
        "message": "m" * 200,
        "fingerprint": "f1",
        "why": "because",
    }
    assert retry.detail == {"delay_s": 1.5, "failures": 2, "crashes": 1, "run_at_us": 99, "why": "because"}


def test_final_failure_without_an_error_is_told_too() -> None:
    """A job may fail without an error object, as an expired one does."""
    settled = change("expired", "failed", error=None)
    [failed, _] = events_of(settled, verdict(settled))
    assert failed.detail == {"final": True, "cause": "expired", "error": "", "message": "", "fingerprint": None, "why": "because"}


def test_requeue_is_told_with_its_operator() -> None:
    """The operator is the worker of the change; the fence is the job's, since nobody holds it."""
    settled = change("requeue", "pending", worker="ann")
    [event] = events_of(settled, verdict(settled))
    assert (event.fence, event.detail) == (5, {"generation": 2, "by": "ann", "why": "because"})


def test_stored_kinds_are_kinds() -> None:
    """The store's log keeps a subset, and leaves out what every success makes."""
    assert set(EVENT_KINDS) > STORED_KINDS
    assert not STORED_KINDS & {"ENQUEUED", "CLAIM_START", "CLAIM_SUCCESS", "PROCESSING", "COMPLETED", "LOCK_RELEASE", "RELEASED"}


def test_the_documented_kinds_exist() -> None:
    """Programs depend on these names."""
    assert set(EVENT_KINDS) >= {"CLAIM_START", "CLAIM_SUCCESS", "PROCESSING", "COMPLETED", "FAILED", "RETRY_SCHEDULED", "LOCK_RELEASE"}
    assert len(set(EVENT_KINDS)) == len(EVENT_KINDS)
