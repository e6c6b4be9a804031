"""What decide does when a retry budget is spent: nothing, a longer backoff, or the end of the job."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mulligan.core.contract import BudgetMode
from mulligan.core.outcome import LeaseLost, Outcome, Released, Requeued, Snoozed, Succeeded
from mulligan.policy.adaptive import Adaptive
from mulligan.policy.backoff import Exponential
from mulligan.policy.retry import RetryPolicy, freeze, thaw
from tests.policy.fates import (
    ASKED,
    ASKED_LATER,
    BAD,
    BAD_FOR_GOOD,
    CODELESS,
    CRASHED_ONCE,
    CRASHED_TWICE,
    DEAD,
    FIRST,
    LAST,
    NEW,
    NO_CODE,
    OLD_AGE,
    SECOND,
    SNOOZING,
    TABLE,
    TIMED_OUT,
    TOLD_TO_WAIT,
    UNLIMITED,
    YEAR_US,
    YOUNG,
    counters,
    settle,
)
from tests.policy.samples import SECOND_US, custom, make_job

SPENT = "x 3 to {}, as the retry budget is spent"
FAILS = "the retry budget is spent, and its rule is to fail"


@pytest.mark.parametrize(
    ("state", "outcome", "delay_us", "chosen_us", "why"),
    [
        (FIRST, BAD, 3_000_000, 1_000_000, "failure 1 of at most 4 executions: exponential 1 s x 2^(1-1) = 1 s; " + SPENT.format("3 s")),
        (SECOND, BAD, 6_000_000, 2_000_000, "failure 2 of at most 4 executions: exponential 1 s x 2^(2-1) = 2 s; " + SPENT.format("6 s")),
        (
            SECOND, TIMED_OUT, 6_000_000, 2_000_000,
            "failure 2 of at most 4 executions: exponential 1 s x 2^(2-1) = 2 s; " + SPENT.format("6 s"),
        ),
        (
            SECOND, ASKED, 6_000_000, 2_000_000,
            "failure 2 of at most 4 executions: exponential 1 s x 2^(2-1) = 2 s; " + SPENT.format("6 s")
            + "; the handler asked for a retry",
        ),
        (  # beyond the cap: longer is the point
            UNLIMITED, BAD, 2_700_000_000, 900_000_000,
            "failure 5000 of unlimited executions: exponential 1 s x 2^(5000-1), capped at 900 s; " + SPENT.format("2700 s"),
        ),
        (
            CRASHED_ONCE, LeaseLost("gone"), 6_000_000, 2_000_000,
            "crash 2 of at most 3, gone: exponential 1 s x 2^(2-1) = 2 s; " + SPENT.format("6 s"),
        ),
    ],
)  # fmt: skip
def test_r13_backoff_is_stretched(state: dict[str, Any], outcome: Outcome, delay_us: int, chosen_us: int, why: str) -> None:
    """R13: with the budget spent backoffs are longer. What the policy chose is kept apart, so that the stretch does not pile up."""
    change = settle(make_job(**state), outcome, over_budget="backoff", stretch=3.0)
    assert (change.status, change.lane, change.delay_us, change.last_delay_us) == ("pending", "retry", delay_us, chosen_us)
    assert change.why == why
    assert change.record is not None
    assert (change.record.why, change.record.delay_us) == (why, delay_us)


def test_stretch_comes_after_congestion_cap_and_jitter() -> None:
    """Base, congestion, cap, jitter, stretch, in this order, and told in this order."""
    policy = RetryPolicy(backoff=Exponential(2, 2, 60), adaptive=Adaptive(depth=10))
    calm = settle(make_job(), BAD, policy, rng=Random(5), depth=900)
    change = settle(make_job(), BAD, policy, rng=Random(5), depth=900, over_budget="backoff", stretch=2.5)
    chosen_us = calm.delay_us
    assert 2 * SECOND_US < chosen_us < 32 * SECOND_US
    assert (change.delay_us, change.last_delay_us) == (round(2.5 * chosen_us), chosen_us)
    assert calm.last_delay_us == chosen_us
    assert change.why == (
        "failure 1 of at most 4 executions: exponential 2 s x 2^(1-1) = 2 s, x 16, the most allowed, for 900 jobs waiting = 32 s, "
        f"full jitter chose {chosen_us / SECOND_US:.3g} s; x 2.5 to {change.delay_us / SECOND_US:.3g} s, as the retry budget is spent"
    )


def test_stretch_is_told_after_what_the_policy_says_of_itself() -> None:
    """A remark of the policy belongs to its own delay."""
    policy = thaw(freeze(RetryPolicy(backoff=custom(lambda n: 7), jitter="none")))
    change = settle(make_job(), CODELESS, policy, over_budget="backoff", stretch=2.0)
    assert change.why == (
        "failure 1 of at most 4 executions: exponential 1 s x 2^(1-1) = 1 s; "
        "the task's delay function is not at hand, so the frozen numbers decide; "
        f"x 2 to 2 s, as the retry budget is spent; {NO_CODE}"
    )


def test_stretched_delay_has_an_end() -> None:
    """A year, as for every delay; and a stretch that stretches nothing is not told."""
    policy = RetryPolicy(backoff=Exponential(20_000_000, 2, 31_622_400), jitter="none")
    assert settle(make_job(), BAD, policy, over_budget="backoff", stretch=1_000.0).delay_us == YEAR_US
    for stretch in (1.0, 0.5):
        assert settle(make_job(), BAD, over_budget="backoff", stretch=stretch) == settle(make_job(), BAD)


def test_stretched_delay_counts_for_the_maximum_age() -> None:
    """No retry is planned beyond it."""
    assert settle(make_job(**YOUNG), BAD, over_budget="backoff", stretch=9.0).status == "pending"
    change = settle(make_job(**YOUNG), BAD, over_budget="backoff", stretch=10.0)
    assert (change.status, change.error) == ("failed", NEW)
    assert change.why.startswith("too old: in 10 s it would be beyond its maximum age of 10 s; failure 1 of")


@pytest.mark.parametrize(
    ("state", "outcome", "cause", "why"),
    [
        (FIRST, BAD, "failure", f"failure 1 of at most 4 executions: {FAILS}"),
        (SECOND, TIMED_OUT, "timeout", f"failure 2 of at most 4 executions: {FAILS}"),
        (UNLIMITED, BAD, "failure", f"failure 5000 of unlimited executions: {FAILS}"),
        (
            SECOND,
            ASKED_LATER,
            "retry asked",
            f"failure 2 of at most 4 executions: {FAILS}; the handler asked for a retry after 15 s",
        ),
        (
            FIRST,
            TOLD_TO_WAIT,
            "failure",
            f"failure 1 of at most 4 executions: {FAILS}; the error carries a Retry-After of 2 h",
        ),
    ],
)
def test_failure_that_would_be_retried_fails(state: dict[str, Any], outcome: Outcome, cause: str, why: str) -> None:
    """The job is failed with its own error, counted as any failure, and the record says whose rule it was."""
    job = make_job(**state)
    change = settle(job, outcome, over_budget="fail", stretch=2.0)
    assert (change.cause, change.status, change.lane, change.delay_us) == (cause, "failed", job.lane, 0)
    assert change.why == why
    assert change.error == NEW
    assert change.record is not None
    assert (change.record.error, change.record.why, change.record.delay_us) == (NEW, why, None)
    assert counters(change) == (job.attempts, job.failures + 1, 0, 0, 0, 1)
    assert change.last_delay_us == job.last_delay_us


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        (FIRST, BAD_FOR_GOOD),
        (LAST, BAD),
        ({"attempts": 4, "crashes": 3, "max_retries": 9}, BAD),
        (OLD_AGE, BAD),
    ],
)
def test_what_fails_anyway_fails_for_its_own_reason(state: dict[str, Any], outcome: Outcome) -> None:
    """Given up on, out of retries, crashed too often, too old: the budget has no part in it."""
    change = settle(make_job(**state), outcome, over_budget="fail")
    assert change.status == "failed"
    assert change == settle(make_job(**state), outcome)


@pytest.mark.parametrize("mode", ["wait", "backoff", "weighted", "fail"])
@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        (SECOND, Succeeded()),
        (SECOND, Snoozed(30 * SECOND_US, "busy")),
        (SECOND, SNOOZING),
        (SECOND, Released("shut down")),
        (DEAD, Requeued("ada", delay_us=5 * SECOND_US)),
        (FIRST, LeaseLost()),
        (CRASHED_TWICE, LeaseLost()),
    ],
)
def test_what_is_no_failure_knows_no_budget(state: dict[str, Any], outcome: Outcome, mode: BudgetMode) -> None:
    """A snooze, a release, a requeue and the first crash spend no backoff; so nothing of them is longer, and nothing fails."""
    job = make_job(**state)
    assert settle(job, outcome, over_budget=mode, stretch=5.0) == settle(job, outcome)


def test_crash_never_fails_for_a_budget() -> None:
    """A lost worker says nothing about the load on a downstream, so the job is kept."""
    job = make_job(**CRASHED_ONCE)
    assert settle(job, LeaseLost(), over_budget="fail", stretch=5.0) == settle(job, LeaseLost())


@pytest.mark.parametrize("outcome", [ASKED_LATER, TOLD_TO_WAIT])
def test_wait_that_was_asked_for_is_not_stretched(outcome: Outcome) -> None:
    """It is left as asked."""
    job = make_job(**SECOND)
    assert settle(job, outcome, over_budget="backoff", stretch=5.0) == settle(job, outcome)


MODES: list[BudgetMode | None] = [None, "wait", "weighted"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("row", TABLE, ids=[row[0] for row in TABLE])
def test_other_modes_change_nothing_here(row: tuple[Any, ...], mode: BudgetMode | None) -> None:
    """Waiting for tokens and falling back to shares happen in the claim, not in the decision."""
    job = make_job(**row[1])
    assert settle(job, row[2], over_budget=mode, stretch=5.0) == settle(job, row[2])


@given(st.sampled_from([row[1:3] for row in TABLE]), st.floats(1, 1_000), st.sampled_from(["wait", "backoff", "weighted", "fail"]))
def test_spent_budget_never_brings_a_retry_forward(row: tuple[dict[str, Any], Outcome], stretch: float, mode: BudgetMode) -> None:
    """Whatever the mode: no job is revived, none waits less than without it, and none waits more than a year."""
    job = make_job(**row[0])
    plain, spent = settle(job, row[1]), settle(job, row[1], over_budget=mode, stretch=stretch)
    if spent.status == plain.status == "pending":
        assert plain.delay_us <= spent.delay_us <= YEAR_US
        assert spent.last_delay_us == plain.last_delay_us
    else:
        assert spent.status in (plain.status, "failed")
    assert counters(spent) == counters(plain)
    assert bool(spent.why) == (spent.cause != "success")
