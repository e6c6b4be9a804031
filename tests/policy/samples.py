"""Jobs and policies for the tests of the policy, built by hand, without a store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from mulligan.core.job import Job
from mulligan.policy.adaptive import Adaptive
from mulligan.policy.backoff import Backoff, Constant, Custom, Delays, Exponential, Linear, Polynomial
from mulligan.policy.checks import SECONDS_MAX, SECONDS_MIN

NOW_US = 1_700_000_000_000_000
SECOND_US = 1_000_000


def make_job(**fields: Any) -> Job:
    """A job in its first execution, claimed at NOW_US and due since then."""
    given: dict[str, Any] = {
        "id": "job-1",
        "queue": "billing",
        "task": "charge",
        "payload": '{"args":[],"kwargs":{}}',
        "policy": "{}",
        "max_retries": 3,
        "priority": 0,
        "lane": "fresh",
        "status": "processing",
        "run_at_us": None,
        "created_at_us": NOW_US,
        "updated_at_us": NOW_US,
        "finished_at_us": None,
        "due_first_us": NOW_US,
        "due_us": NOW_US,
        "attempts": 1,
        "failures": 0,
        "crashes": 0,
        "snoozes": 0,
        "releases": 0,
        "generation": 1,
        "timeout_us": None,
        "max_age_us": None,
        "fence": 7,
        "claim_id": "claim-1",
        "settle_id": None,
        "lease_owner": "worker-1",
        "lease_expires_at_us": NOW_US + 30 * SECOND_US,
        "last_delay_us": None,
        "last_error": None,
        "result_json": None,
        "schedule": None,
        "tick_us": None,
        "unique_key": None,
        "concurrency_key": None,
        "fair_key": None,
        "group": None,
        "tags": (),
        "trace": None,
        "cancel_requested": False,
        "read_at_us": NOW_US,
    }
    return Job(**(given | fields))


def raised(make: Callable[[], BaseException] | BaseException) -> BaseException:
    """The error as a handler would raise it: with a traceback."""
    try:
        raise make() if callable(make) else make
    except BaseException as error:  # noqa: BLE001 - that is the point
        return error


SECONDS = st.one_of(st.integers(1, SECONDS_MAX), st.floats(SECONDS_MIN, SECONDS_MAX), st.floats(SECONDS_MIN, 100))
FACTORS = st.one_of(st.integers(1, 1_000), st.floats(1, 1_000), st.floats(1, 1.001))
POWERS = st.one_of(st.integers(1, 100), st.floats(SECONDS_MIN, 100))


@st.composite
def backoffs(draw: st.DrawFn) -> Backoff:
    """Any valid backoff whose formula is ours."""
    low, high = sorted((draw(SECONDS), draw(SECONDS)))
    shape = draw(st.sampled_from(["exponential", "linear", "polynomial", "constant", "delays"]))
    if shape == "exponential":
        return Exponential(low, draw(FACTORS), high)
    if shape == "linear":
        return Linear(low, high)
    if shape == "polynomial":
        return Polynomial(low, draw(POWERS), high)
    if shape == "constant":
        return Constant(low)
    return Delays(*sorted(draw(st.lists(SECONDS, min_size=1, max_size=8))))


@st.composite
def adaptives(draw: st.DrawFn) -> Adaptive:
    """Any valid way to adapt, with at least one part that does."""
    depth = draw(st.none() | st.integers(1, 2_000))
    age = draw(st.none() | SECONDS)
    failures = draw(st.none() | st.floats(0.001, 1_000) | st.integers(1, 1_000))
    if depth is age is failures is None:
        depth = 10
    return Adaptive(depth, age, failures, draw(st.none() | st.floats(1, 1_000) | st.just(16)))


JITTERS = st.sampled_from(["none", "full", "equal", "percent(25)", "percent(100)", "percent(0.5)", "bounded", "decorrelated"])
FAILURE_NUMBERS = st.one_of(st.integers(1, 50), st.integers(1, 10**9), st.sampled_from([1, 2, 1_025, 10**9, 2**63, 10**400]))


def custom(function: Callable[[int], Any], cap: float | None = None) -> Custom:
    """A backoff of a function that may answer anything."""
    return Custom(function, cap)
