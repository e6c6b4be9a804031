"""The table of decide: what a job has been through, what happens to it, and what must become of it."""

from __future__ import annotations

from random import Random
from typing import Any

from mulligan.core.change import Change
from mulligan.core.contract import Signals
from mulligan.core.job import ErrorInfo, Job
from mulligan.core.outcome import (
    CancelObeyed,
    Expired,
    LeaseLost,
    Outcome,
    Raised,
    Released,
    Requeued,
    Snoozed,
    Succeeded,
    Unstorable,
)
from mulligan.policy.decide import decide
from mulligan.policy.retry import RetryPolicy
from tests.policy.samples import NOW_US, SECOND_US

OLD = ErrorInfo(type="OldError", message="from before", at_us=1)
NEW = ErrorInfo(type="ValueError", message="bad", code="7", at_us=2)
PLAIN = RetryPolicy(jitter="none")
YEAR_US = 366 * 86_400 * SECOND_US


def settle(
    job: Job, outcome: Outcome, policy: RetryPolicy = PLAIN, *, now_us: int = NOW_US, rng: Random | None = None, **seen: Any
) -> Change:
    """What decide makes of it, on a worker named w that has seen these signals."""
    signals = Signals(now_us=now_us, **seen)
    return decide(job, outcome, policy, signals, rng or Random(1), settle_id="settle-1", worker="w", started_at_us=NOW_US - 5 * SECOND_US)


def counters(change: Change) -> tuple[int, int, int, int, int, int]:
    """Attempts, failures, crashes, snoozes, releases, generation."""
    return (change.attempts, change.failures, change.crashes, change.snoozes, change.releases, change.generation)


# What a job has been through when the outcome comes: the fields that differ from a first execution.
FIRST: dict[str, Any] = {}
SECOND: dict[str, Any] = {"attempts": 2, "failures": 1, "lane": "retry", "last_error": OLD, "last_delay_us": 900_000}
LAST: dict[str, Any] = {"attempts": 4, "failures": 3, "lane": "retry", "last_error": OLD, "last_delay_us": 4_000_000}
CRASHED_ONCE: dict[str, Any] = {"attempts": 2, "crashes": 1, "lane": "retry", "last_error": OLD}
CRASHED_TWICE: dict[str, Any] = {"attempts": 3, "crashes": 2, "lane": "retry", "last_error": OLD}
CRASHED_LAST: dict[str, Any] = {"attempts": 4, "failures": 2, "crashes": 1, "lane": "retry", "last_error": OLD}
SNOOZED: dict[str, Any] = {"snoozes": 99, "releases": 2, "last_error": OLD}
SNOOZED_OUT: dict[str, Any] = {"snoozes": 100, "last_error": OLD}
ONCE_ONLY: dict[str, Any] = {"max_retries": 0}
UNLIMITED: dict[str, Any] = {"max_retries": None, "attempts": 5_000, "failures": 4_999, "lane": "retry"}
YOUNG: dict[str, Any] = {"max_age_us": 10 * SECOND_US}
OLD_AGE: dict[str, Any] = {"max_age_us": 1 * SECOND_US}
DEAD: dict[str, Any] = {
    "status": "failed",
    "attempts": 4,
    "failures": 2,
    "crashes": 2,
    "snoozes": 5,
    "releases": 6,
    "generation": 3,
    "lane": "fresh",
    "last_error": OLD,
    "last_delay_us": 4_000_000,
}

BAD = Raised(error=NEW)
BAD_FOR_GOOD = Raised(error=NEW, ruling="give_up", rule="give_up_on names ValueError")
TIMED_OUT = Raised(error=NEW, timed_out=True)
ASKED = Raised(error=NEW, asked=True, rule="the handler asked for a retry")
ASKED_LATER = Raised(error=NEW, asked=True, after_us=15 * SECOND_US, rule="the handler asked for a retry after 15 s")
ASKED_NOW = Raised(error=NEW, asked=True, after_us=0)
TOLD_TO_WAIT = Raised(error=NEW, after_us=7_200 * SECOND_US, rule="the error carries a Retry-After of 2 h")
SNOOZING = Raised(error=NEW, ruling="snooze", after_us=45 * SECOND_US, rule="snooze_on names ValueError")
SNOOZING_BARE = Raised(error=NEW, ruling="snooze")
CODELESS = Raised(error=NEW, code_missing=True)
NO_CODE = "the task's own rules are not at hand here, so the frozen numbers decide"

# state, outcome, then: cause, status, lane, delay in us, counters, and why
TABLE: list[tuple[str, dict[str, Any], Outcome, str, str, str, int, tuple[int, ...], str]] = [
    ("first success", FIRST, Succeeded('"ok"'), "success", "done", "fresh", 0, (1, 0, 0, 0, 0, 1), ""),
    ("success after failures", LAST, Succeeded(), "success", "done", "retry", 0, (4, 3, 0, 0, 0, 1), ""),
    (
        "first failure", FIRST, BAD, "failure", "pending", "retry", 1_000_000, (1, 1, 0, 0, 0, 1),
        "failure 1 of at most 4 executions: exponential 1 s x 2^(1-1) = 1 s",
    ),
    (
        "second failure", SECOND, BAD, "failure", "pending", "retry", 2_000_000, (2, 2, 0, 0, 0, 1),
        "failure 2 of at most 4 executions: exponential 1 s x 2^(2-1) = 2 s",
    ),
    (
        "last failure", LAST, BAD, "failure", "failed", "retry", 0, (4, 4, 0, 0, 0, 1),
        "failure 4 of at most 4 executions: no retry is left",
    ),
    (
        "failure without retries", ONCE_ONLY, BAD, "failure", "failed", "fresh", 0, (1, 1, 0, 0, 0, 1),
        "failure 1 of at most 1 executions: no retry is left",
    ),
    (
        "failure without limit", UNLIMITED, BAD, "failure", "pending", "retry", 900_000_000, (5_000, 5_000, 0, 0, 0, 1),
        "failure 5000 of unlimited executions: exponential 1 s x 2^(5000-1), capped at 900 s",
    ),
    (
        "failure after a crash", CRASHED_ONCE, BAD, "failure", "pending", "retry", 1_000_000, (2, 1, 1, 0, 0, 1),
        "failure 1 of at most 4 executions, 2 used: exponential 1 s x 2^(1-1) = 1 s",
    ),
    (
        "last failure after a crash", CRASHED_LAST, BAD, "failure", "failed", "retry", 0, (4, 3, 1, 0, 0, 1),
        "failure 3 of at most 4 executions, 4 used: no retry is left",
    ),
    (
        "failure after too many crashes", {"attempts": 4, "crashes": 3, "max_retries": 9}, ASKED, "retry asked", "failed", "fresh", 0,
        (4, 1, 3, 0, 0, 1), "failure 1 of at most 10 executions, 4 used: it has crashed too often to run again; "
        "the handler asked for a retry",
    ),
    (
        "permanent error", FIRST, BAD_FOR_GOOD, "failure", "failed", "fresh", 0, (1, 1, 0, 0, 0, 1),
        "failure 1 of at most 4 executions: given up for good; give_up_on names ValueError",
    ),
    (
        "time-out", FIRST, TIMED_OUT, "timeout", "pending", "retry", 1_000_000, (1, 1, 0, 0, 0, 1),
        "failure 1 of at most 4 executions: exponential 1 s x 2^(1-1) = 1 s",
    ),
    (
        "retry asked", SECOND, ASKED, "retry asked", "pending", "retry", 2_000_000, (2, 2, 0, 0, 0, 1),
        "failure 2 of at most 4 executions: exponential 1 s x 2^(2-1) = 2 s; the handler asked for a retry",
    ),
    (
        "retry asked with a time", SECOND, ASKED_LATER, "retry asked", "pending", "retry", 15_000_000, (2, 2, 0, 0, 0, 1),
        "failure 2 of at most 4 executions: waits 15 s as asked; the handler asked for a retry after 15 s",
    ),
    (
        "retry asked at once", FIRST, ASKED_NOW, "retry asked", "pending", "retry", 1_000, (1, 1, 0, 0, 0, 1),
        "failure 1 of at most 4 executions: waits 1 ms as asked",
    ),
    (
        "retry asked with none left", LAST, ASKED_LATER, "retry asked", "failed", "retry", 0, (4, 4, 0, 0, 0, 1),
        "failure 4 of at most 4 executions: no retry is left; the handler asked for a retry after 15 s",
    ),
    (
        "Retry-After beyond the limit", FIRST, TOLD_TO_WAIT, "failure", "pending", "retry", 3_600_000_000, (1, 1, 0, 0, 0, 1),
        "failure 1 of at most 4 executions: waits 3600 s, cut from 2 h by max_retry_after; the error carries a Retry-After of 2 h",
    ),
    (
        "failure without its rules", FIRST, CODELESS, "failure", "pending", "retry", 1_000_000, (1, 1, 0, 0, 0, 1),
        f"failure 1 of at most 4 executions: exponential 1 s x 2^(1-1) = 1 s; {NO_CODE}",
    ),
    (
        "failure too late for a retry", OLD_AGE, BAD, "failure", "failed", "fresh", 0, (1, 1, 0, 0, 0, 1),
        "too old: in 1 s it would be beyond its maximum age of 1 s; "
        "failure 1 of at most 4 executions: exponential 1 s x 2^(1-1) = 1 s",
    ),
    (
        "failure in time for a retry", YOUNG, BAD, "failure", "pending", "retry", 1_000_000, (1, 1, 0, 0, 0, 1),
        "failure 1 of at most 4 executions: exponential 1 s x 2^(1-1) = 1 s",
    ),
    (
        "snooze by rule", SECOND, SNOOZING, "snooze", "pending", "retry", 45_000_000, (1, 1, 0, 1, 0, 1),
        "snooze 1 of at most 100: 45 s, which spends no retry; snooze_on names ValueError",
    ),
    (
        "snooze by rule without a time", FIRST, SNOOZING_BARE, "snooze", "pending", "fresh", 30_000_000, (0, 0, 0, 1, 0, 1),
        "snooze 1 of at most 100: 30 s, which spends no retry",
    ),
    (
        "snoozed out by rule", SNOOZED_OUT, SNOOZING, "snooze", "failed", "fresh", 0, (0, 0, 0, 101, 0, 1),
        "snoozed out: snooze 101, and 100 are allowed; snooze_on names ValueError",
    ),
    (
        "snooze", FIRST, Snoozed(30 * SECOND_US, "busy"), "snooze", "pending", "fresh", 30_000_000, (0, 0, 0, 1, 0, 1),
        "snooze 1 of at most 100: 30 s, which spends no retry; busy",
    ),
    (
        "snooze of a retry", LAST, Snoozed(30 * SECOND_US), "snooze", "pending", "retry", 30_000_000, (3, 3, 0, 1, 0, 1),
        "snooze 1 of at most 100: 30 s, which spends no retry",
    ),
    (
        "last snooze", SNOOZED, Snoozed(0), "snooze", "pending", "fresh", 1_000, (0, 0, 0, 100, 2, 1),
        "snooze 100 of at most 100: 1 ms, which spends no retry",
    ),
    (
        "snoozed out", SNOOZED_OUT, Snoozed(SECOND_US, "busy"), "snooze", "failed", "fresh", 0, (0, 0, 0, 101, 0, 1),
        "snoozed out: snooze 101, and 100 are allowed; busy",
    ),
    (
        "endless snooze", FIRST, Snoozed(10 * YEAR_US), "snooze", "pending", "fresh", YEAR_US, (0, 0, 0, 1, 0, 1),
        "snooze 1 of at most 100: 366 days, which spends no retry",
    ),
    (
        "snooze beyond the maximum age", YOUNG, Snoozed(10 * SECOND_US), "snooze", "failed", "fresh", 0, (0, 0, 0, 1, 0, 1),
        "too old: in 10 s it would be beyond its maximum age of 10 s; snooze 1 of at most 100: 10 s, which spends no retry",
    ),
    (
        "release", FIRST, Released("the worker shut down"), "release", "pending", "fresh", 0, (0, 0, 0, 0, 1, 1),
        "given back uncounted, due again at once: the worker shut down",
    ),
    (
        "release of a last attempt", LAST, Released("unknown task", 30 * SECOND_US), "release", "pending", "retry", 30_000_000,
        (3, 3, 0, 0, 1, 1), "given back uncounted, due again in 30 s: unknown task",
    ),
    (
        "release with strange delays", OLD_AGE, Released("x", -5), "release", "pending", "fresh", 0, (0, 0, 0, 0, 1, 1),
        "given back uncounted, due again at once: x",
    ),
    (
        "release for ever", FIRST, Released("x", 10 * YEAR_US), "release", "pending", "fresh", YEAR_US, (0, 0, 0, 0, 1, 1),
        "given back uncounted, due again in 366 days: x",
    ),
    ("cancel", SECOND, CancelObeyed("not needed"), "cancel", "cancelled", "retry", 0, (2, 1, 0, 0, 0, 1), "cancelled; not needed"),
    ("cancel without reason", FIRST, CancelObeyed(), "cancel", "cancelled", "fresh", 0, (1, 0, 0, 0, 0, 1), "cancelled"),
    (
        "first crash", FIRST, LeaseLost(), "crash", "pending", "retry", 0, (1, 0, 1, 0, 0, 1),
        "crash 1 of at most 3, the lease ran out: the first one, so it runs again at once",
    ),
    (
        "second crash", CRASHED_ONCE, LeaseLost("its process died", lapsed=False), "crash", "pending", "retry", 2_000_000,
        (2, 0, 2, 0, 0, 1), "crash 2 of at most 3, its process died: exponential 1 s x 2^(2-1) = 2 s",
    ),
    (
        "third crash", CRASHED_TWICE, LeaseLost(), "crash", "failed", "retry", 0, (3, 0, 3, 0, 0, 1),
        "crashed: crash 3 of at most 3, the lease ran out",
    ),
    (
        "crash in the last attempt", CRASHED_LAST, LeaseLost(), "crash", "failed", "retry", 0, (4, 2, 2, 0, 0, 1),
        "crashed: crash 2 of at most 3, the lease ran out; no retry is left of at most 4 executions",
    ),
    (
        "crash without retries", ONCE_ONLY, LeaseLost(), "crash", "failed", "fresh", 0, (1, 0, 1, 0, 0, 1),
        "crashed: crash 1 of at most 3, the lease ran out; no retry is left of at most 1 executions",
    ),
    (
        "crash beyond the maximum age", {"max_age_us": 1 * SECOND_US, "due_first_us": NOW_US - SECOND_US}, LeaseLost(), "crash", "failed",
        "fresh", 0, (1, 0, 1, 0, 0, 1),
        "too old: in 0 ms it would be beyond its maximum age of 1 s; "
        "crash 1 of at most 3, the lease ran out: the first one, so it runs again at once",
    ),
    (
        "expired", {"due_first_us": NOW_US - 90 * SECOND_US, "last_error": OLD}, Expired(), "expired", "failed", "fresh", 0,
        (1, 0, 0, 0, 0, 1), "too old: claimed 90 s after it first fell due, beyond its maximum age; not run",
    ),
    (
        "unstorable", SECOND, Unstorable("NUL in text"), "unstorable", "failed", "retry", 0, (2, 1, 0, 0, 0, 1),
        "unstorable: the store refuses to keep the outcome: NUL in text",
    ),
    (
        "requeue", DEAD, Requeued("ada"), "requeue", "pending", "retry", 0, (0, 0, 0, 0, 0, 4),
        "requeued by ada: all limits start anew, in generation 4",
    ),
    (
        "requeue by nobody, later", DEAD, Requeued(delay_us=5 * SECOND_US), "requeue", "pending", "retry", 5_000_000, (0, 0, 0, 0, 0, 4),
        "requeued by an operator: all limits start anew, in generation 4",
    ),
    (
        "requeue with strange delays", DEAD, Requeued(delay_us=-5), "requeue", "pending", "retry", 0, (0, 0, 0, 0, 0, 4),
        "requeued by an operator: all limits start anew, in generation 4",
    ),
    (
        "requeue for ever", DEAD, Requeued(delay_us=10 * YEAR_US), "requeue", "pending", "retry", YEAR_US, (0, 0, 0, 0, 0, 4),
        "requeued by an operator: all limits start anew, in generation 4",
    ),
]  # fmt: skip
