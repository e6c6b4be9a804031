from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mulligan.core.change import Change, Dead, Guard, Held, Lapsed
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
from mulligan.policy.backoff import Constant, Exponential
from mulligan.policy.decide import decide
from mulligan.policy.error_info import fingerprint
from mulligan.policy.retry import RetryPolicy, freeze, thaw
from tests.policy.fates import (
    ASKED_LATER,
    BAD,
    BAD_FOR_GOOD,
    CRASHED_ONCE,
    CRASHED_TWICE,
    DEAD,
    FIRST,
    LAST,
    NEW,
    OLD,
    OLD_AGE,
    ONCE_ONLY,
    PLAIN,
    SECOND,
    SNOOZED_OUT,
    SNOOZING,
    TABLE,
    YEAR_US,
    YOUNG,
    counters,
    settle,
)
from tests.policy.samples import NOW_US, SECOND_US, backoffs, custom, make_job


@pytest.mark.parametrize(
    ("state", "outcome", "cause", "status", "lane", "delay_us", "counts", "why"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_outcome_by_state(
    state: dict[str, Any], outcome: Outcome, cause: str, status: str, lane: str, delay_us: int, counts: tuple[int, ...], why: str
) -> None:
    """Every outcome in every state that matters: the whole change, field by field (W02, O02, P02, A2, A6)."""
    job = make_job(**state)
    change = settle(job, outcome)
    assert (change.cause, change.status, change.lane, change.delay_us) == (cause, status, lane, delay_us)
    assert counters(change) == counts
    assert change.why == why
    assert (change.job_id, change.queue, change.task, change.settle_id) == ("job-1", "billing", "charge", "settle-1")
    assert change.guard == expected_guard(job, outcome)
    assert change.worker == ("ada" if outcome == Requeued("ada") else "w")
    assert change.result_json == (outcome.result_json if isinstance(outcome, Succeeded) else None)
    assert change.ran_us == 5 * SECOND_US
    check_record(job, change)


def expected_guard(job: Job, outcome: Outcome) -> Guard:
    if isinstance(outcome, Requeued):
        return Dead(job.generation)
    return Lapsed(job.fence) if isinstance(outcome, LeaseLost) and outcome.lapsed else Held(job.fence)


def check_record(job: Job, change: Change) -> None:
    """A plain success leaves no record; everything else leaves one that says the same as the change."""
    if change.cause == "success":
        assert change.record is None
        assert change.error is None
        assert change.last_delay_us is None
        return
    record = change.record
    assert record is not None
    assert (record.outcome, record.why, record.worker) == (change.cause, change.why, change.worker)
    assert (record.generation, record.fence) == (change.generation, job.fence)
    assert record.attempt == (0 if change.cause == "requeue" else job.attempts)
    assert record.started_at_us == NOW_US - 5 * SECOND_US
    assert record.ended_at_us is None  # the store's to write
    assert record.delay_us == (change.delay_us if change.status == "pending" else None)


def test_every_outcome_is_in_the_table() -> None:
    """A new kind of outcome needs its rows."""
    assert {type(row[2]) for row in TABLE} == set(Outcome.__args__)


@pytest.mark.parametrize(
    ("state", "outcome", "kept", "recorded"),
    [
        (SECOND, Succeeded(), None, None),
        (SECOND, BAD, NEW, NEW),
        (LAST, BAD, NEW, NEW),
        (SECOND, BAD_FOR_GOOD, NEW, NEW),
        (SECOND, SNOOZING, OLD, NEW),
        (SNOOZED_OUT, SNOOZING, NEW, NEW),
        (SECOND, Snoozed(5), OLD, None),
        (SECOND, Released("x"), OLD, None),
        (SECOND, CancelObeyed(), OLD, None),
        (DEAD, Requeued(), OLD, None),
        (OLD_AGE, BAD, NEW, NEW),
    ],
)
def test_a36_error_a_job_keeps(state: dict[str, Any], outcome: Outcome, kept: ErrorInfo | None, recorded: ErrorInfo | None) -> None:
    """A36: success clears the error, a failure replaces it, what is no failure keeps it; the record has the error of its own execution."""
    change = settle(make_job(**state), outcome)
    assert change.error == kept
    assert (change.record.error if change.record else None) == recorded


@pytest.mark.parametrize(
    ("state", "outcome", "kind", "message", "code"),
    [
        (FIRST, LeaseLost("its process died"), "mulligan.Crashed", "its process died", "crashed"),
        (CRASHED_TWICE, LeaseLost("its\0host"), "mulligan.Crashed", "its\N{REPLACEMENT CHARACTER}host", "crashed"),
        (CRASHED_ONCE, LeaseLost("gone"), "mulligan.Crashed", "gone", "crashed"),
        (ONCE_ONLY, LeaseLost("gone"), "mulligan.Crashed", "gone", "crashed"),
        (FIRST, Unstorable("NUL"), "mulligan.Unstorable", "NUL", "unstorable"),
        (
            {"due_first_us": NOW_US - 90 * SECOND_US},
            Expired(),
            "mulligan.Expired",
            "too old: claimed 90 s after it first fell due, beyond its maximum age; not run",
            "too old",
        ),
        (
            SNOOZED_OUT,
            Snoozed(5, "busy"),
            "mulligan.SnoozedOut",
            "snoozed out: snooze 101, and 100 are allowed; busy",
            "snoozed out",
        ),
        (
            YOUNG,
            Snoozed(10 * SECOND_US),
            "mulligan.Expired",
            "too old: in 10 s it would be beyond its maximum age of 10 s; snooze 1 of at most 100: 10 s, which spends no retry",
            "too old",
        ),
        (FIRST, Unstorable("x" * 5_000), "mulligan.Unstorable", "x" * 4_000 + "… (5,000 characters in all)", "unstorable"),
    ],
)
def test_a13_ends_that_no_handler_raised_have_an_error_too(
    state: dict[str, Any], outcome: Outcome, kind: str, message: str, code: str
) -> None:
    """A13: whoever reads a failed job finds the reason in its error, and its kind in the code."""
    change = settle(make_job(**state), outcome)
    assert change.error == ErrorInfo(type=kind, message=message, code=code, fingerprint=fingerprint(kind, []), at_us=NOW_US)
    assert change.record is not None
    assert change.record.error == change.error


@pytest.mark.parametrize(
    ("state", "outcome", "last_delay_us"),
    [
        (SECOND, BAD, 2_000_000),
        (SECOND, ASKED_LATER, 900_000),  # a wait somebody asked for says nothing about the backoff
        (SECOND, Snoozed(5), 900_000),
        (SECOND, Released("x"), 900_000),
        (LAST, BAD, 4_000_000),
        (SECOND | {"crashes": 0}, LeaseLost(), 900_000),
        (SECOND | {"crashes": 1}, LeaseLost(), 2_000_000),
        (DEAD, Requeued(), None),
        (SECOND, Succeeded(), None),
    ],
)
def test_last_delay_is_the_backoff_chosen_last(state: dict[str, Any], outcome: Outcome, last_delay_us: int | None) -> None:
    """What decorrelated jitter builds on is kept over everything but success and a requeue."""
    assert settle(make_job(**state), outcome).last_delay_us == last_delay_us


def test_decorrelated_jitter_builds_on_the_stored_delay() -> None:
    """A24: the delay before comes from the job."""
    policy = RetryPolicy(jitter="decorrelated")
    state = {"attempts": 2, "failures": 1}
    assert settle(make_job(**state), BAD, policy, rng=Random(4)).delay_us <= 3 * SECOND_US
    change = settle(make_job(**state, last_delay_us=200 * SECOND_US), BAD, policy, rng=Random(4))
    assert 3 * SECOND_US < change.delay_us <= 600 * SECOND_US
    assert "decorrelated jitter chose" in change.why


def test_why_names_the_jitter_and_its_choice() -> None:
    """The sentence a newcomer reads: limit, formula, jitter, choice."""
    change = settle(make_job(attempts=2, failures=1), BAD, RetryPolicy(), rng=Random(1))
    chosen = change.delay_us / SECOND_US
    assert change.why == (f"failure 2 of at most 4 executions: exponential 1 s x 2^(2-1) = 2 s, full jitter chose {chosen * 1_000:.3g} ms")
    assert 0 < chosen < 1


def test_same_inputs_same_change() -> None:
    """Pure: the generator is the only source of chance."""
    job = make_job()
    assert settle(job, BAD, RetryPolicy(), rng=Random(7)) == settle(job, BAD, RetryPolicy(), rng=Random(7))
    assert settle(job, BAD, RetryPolicy(), rng=Random(7)) != settle(job, BAD, RetryPolicy(), rng=Random(8))


def test_limits_of_the_policy_are_obeyed() -> None:
    """Crashes, snoozes and the longest asked wait have limits of their own, set by the policy."""
    policy = RetryPolicy(jitter="none", max_crashes=1, max_snoozes=0, max_retry_after=10)
    assert settle(make_job(), LeaseLost(), policy).status == "failed"
    assert settle(make_job(), Snoozed(5), policy).status == "failed"
    assert settle(make_job(), ASKED_LATER, policy).delay_us == 10 * SECOND_US
    exact = Raised(error=NEW, after_us=10 * SECOND_US)
    assert settle(make_job(), exact, policy).why == "failure 1 of at most 4 executions: waits 10 s as asked"
    assert settle(make_job(crashes=1), LeaseLost(), RetryPolicy(max_crashes=5, jitter="none")).delay_us == 2 * SECOND_US


def test_limit_is_the_job_s_own() -> None:
    """The stored limit decides, whatever the policy at hand says: it was frozen at enqueue."""
    policy = RetryPolicy(max_retries=50, jitter="none")
    assert settle(make_job(max_retries=0), BAD, policy).status == "failed"
    assert settle(make_job(max_retries=60, attempts=55), BAD, policy).status == "pending"


def test_maximum_age_is_the_job_s_own_or_the_policy_s() -> None:
    """A job without a maximum age of its own takes the policy's."""
    policy = RetryPolicy(jitter="none", max_age=0.5)
    assert settle(make_job(), BAD, policy).why.startswith("too old: in 1 s it would be beyond its maximum age of 500 ms; ")
    assert settle(make_job(max_age_us=60 * SECOND_US), BAD, policy).status == "pending"


def test_age_counts_from_when_the_job_first_fell_due() -> None:
    """A retry just before the maximum age is planned, one at or after it is not: a job claimed at that age would be expired."""
    job = make_job(due_first_us=NOW_US - 2 * SECOND_US, max_age_us=3 * SECOND_US + 1)
    assert settle(job, BAD).status == "pending"
    assert settle(job, BAD, now_us=NOW_US + 1).status == "failed"


def test_now_is_the_latest_time_known() -> None:
    """The signals may be older than the claim; the later of the two counts."""
    job = make_job(due_first_us=NOW_US - 2 * SECOND_US, max_age_us=3 * SECOND_US)
    assert settle(job, BAD, now_us=0).status == "failed"
    change = settle(make_job(), LeaseLost(), now_us=NOW_US + 9)
    assert change.error is not None
    assert change.error.at_us == NOW_US + 9
    assert settle(make_job(due_first_us=NOW_US + 5), Expired()).why.startswith("too old: claimed 0 ms after")


def test_run_time_is_never_negative() -> None:
    """Clocks step; a run without a start has no length."""
    signals = Signals(now_us=NOW_US)
    for outcome in (Succeeded(), BAD):
        early = decide(make_job(), outcome, PLAIN, signals, Random(1), settle_id="s", started_at_us=NOW_US + 1)
        unstarted = decide(make_job(), outcome, PLAIN, signals, Random(1), settle_id="s")
        assert (early.ran_us, unstarted.ran_us) == (0, 0)
        assert unstarted.worker == ""


def test_texts_from_outside_are_made_storable() -> None:
    """A reason with NUL, or without end, must not make the change unstorable."""
    why = settle(make_job(), CancelObeyed("a\0\ud800" + "b" * 2_000)).why
    assert why.startswith("cancelled; a\N{REPLACEMENT CHARACTER}?bbb")
    assert why.endswith("… (2,014 characters in all)")
    assert len(why) == 1_000 + len("… (2,014 characters in all)")
    crash = settle(make_job(), LeaseLost("x\0"))
    assert crash.record is not None
    assert "\0" not in crash.why + crash.record.why


def test_failing_delay_function_does_not_fail_the_failure_path() -> None:
    """A21: the job gets a delay whatever its function does, and the record says why."""
    change = settle(make_job(), BAD, RetryPolicy(backoff=custom(lambda n: 1 / 0), jitter="none"))
    assert change.delay_us == SECOND_US
    assert "the task's delay function raised ZeroDivisionError, so the frozen numbers decide" in change.why


def test_missing_delay_function_is_told_in_the_record() -> None:
    """Where the code is absent the frozen numbers decide, and the record says so."""
    text = freeze(RetryPolicy(backoff=custom(lambda n: 55), jitter="none"))
    change = settle(make_job(), BAD, thaw(text, None))
    assert change.record is not None
    assert change.record.why == (
        "failure 1 of at most 4 executions: exponential 1 s x 2^(1-1) = 1 s; "
        "the task's delay function is not at hand, so the frozen numbers decide"
    )


def test_unlimited_policy_does_not_warn_in_the_failure_path() -> None:
    """E3: None as a limit is no error and no noise where the outcome is decided; warnings are errors in these tests."""
    change = settle(make_job(max_retries=None), BAD, RetryPolicy(max_retries=None, jitter="none"))
    assert change.status == "pending"


def test_smallest_delay_is_a_millisecond() -> None:
    """A25: no backoff rounds down to a hot loop."""
    assert settle(make_job(), BAD, RetryPolicy(backoff=Constant(0.001), jitter="full")).delay_us == 1_000


def test_fractions_of_a_microsecond_are_rounded() -> None:
    """A delay is stored to the nearest microsecond."""
    assert settle(make_job(), BAD, RetryPolicy(backoff=Constant(1.0000007), jitter="none")).delay_us == 1_000_001


def test_attempts_never_fall_below_zero() -> None:
    """A job edited by hand must not get a negative count."""
    for outcome in (Snoozed(5), Released("x")):
        assert settle(make_job(attempts=0), outcome).attempts == 0


OUTCOMES = st.sampled_from([row[2] for row in TABLE])


@given(
    OUTCOMES,
    st.none() | st.integers(0, 5),
    st.integers(0, 12),
    st.integers(0, 12),
    st.integers(0, 4),
    st.integers(0, 120),
    st.none() | st.integers(1, 10**12),
    st.none() | st.integers(1, 10**12),
    backoffs(),
    st.randoms(use_true_random=False),
)
def test_any_state_gives_a_well_formed_change(
    outcome: Outcome,
    max_retries: int | None,
    attempts: int,
    failures: int,
    crashes: int,
    snoozes: int,
    max_age_us: int | None,
    last_delay_us: int | None,
    backoff: Any,
    rng: Random,
) -> None:
    """decide is total: no state of a row makes it raise, no limit is overrun, every delay is sane."""
    job = make_job(
        max_retries=max_retries,
        attempts=attempts,
        failures=failures,
        crashes=crashes,
        snoozes=snoozes,
        max_age_us=max_age_us,
        last_delay_us=last_delay_us,
    )
    change = settle(job, outcome, RetryPolicy(backoff=backoff), rng=rng)
    assert 0 <= change.delay_us <= YEAR_US
    assert min(counters(change)) >= 0
    assert change.status in ("pending", "done", "failed", "cancelled")
    counted = change.cause in ("failure", "timeout", "retry asked", "crash")
    if change.status == "pending" and counted:
        assert max_retries is None or attempts <= max_retries
        assert change.crashes < 3
        assert change.lane == "retry"
        assert max_age_us is None or job.due_first_us + max_age_us > NOW_US + change.delay_us
    if change.status == "failed":
        assert change.error is not None
    assert msgspec.json.encode(change)
    assert (change.why == "") == (change.cause == "success")


def test_exponential_numbers_reach_the_change() -> None:
    """The five retries of a policy wait what its formula says."""
    policy = RetryPolicy(backoff=Exponential(5, 2, 1_800), jitter="none")
    delays = [settle(make_job(max_retries=20, attempts=n + 1, failures=n), BAD, policy).delay_us / SECOND_US for n in range(11)]
    assert delays == [5, 10, 20, 40, 80, 160, 320, 640, 1_280, 1_800, 1_800]
