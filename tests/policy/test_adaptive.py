from __future__ import annotations

import math
from random import Random
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec import UNSET

from mulligan.core.contract import Signals
from mulligan.core.errors import BadPolicy
from mulligan.core.outcome import LeaseLost
from mulligan.policy.adaptive import Adaptive, lifted, times
from mulligan.policy.backoff import Backoff, Constant, Delays, Exponential
from mulligan.policy.retry import RetryPolicy, freeze, thaw
from tests.policy.fates import ASKED_LATER, BAD, CRASHED_ONCE, NEW, SECOND, settle
from tests.policy.samples import FAILURE_NUMBERS, JITTERS, NOW_US, SECOND_US, adaptives, backoffs, make_job


def seen(depth: int = 0, age_s: float = 0, failure_rate: float = 0) -> Signals:
    return Signals(now_us=NOW_US, depth=depth, oldest_age_us=round(age_s * SECOND_US), failure_rate=failure_rate)


@pytest.mark.parametrize(
    ("adaptive", "signals", "factor", "words"),
    [
        (Adaptive(depth=10), seen(), 1, ""),
        (Adaptive(depth=10), seen(depth=10), 2, "x 2 for 10 jobs waiting"),
        (Adaptive(depth=10), seen(depth=50), 6, "x 6 for 50 jobs waiting"),
        (Adaptive(depth=10), seen(depth=1), 1.1, "x 1.1 for 1 job waiting"),
        (Adaptive(depth=10), seen(0, 1_000, 1), 1, ""),  # what is not given does not count
        (Adaptive(age=30), seen(age_s=30), 2, "x 2 for the oldest waiting for 30 s"),
        (Adaptive(age=30), seen(age_s=0.3), 1.01, "x 1.01 for the oldest waiting for 300 ms"),
        (Adaptive(age=30), seen(age_s=-90), 1, ""),  # clocks disagree
        (Adaptive(age=30), seen(1_000, 0, 1), 1, ""),
        (Adaptive(failures=4), seen(failure_rate=1), 5, "x 5 for 100 % of executions failing"),
        (Adaptive(failures=4), seen(failure_rate=0.125), 1.5, "x 1.5 for 12.5 % of executions failing"),
        (Adaptive(failures=4), seen(1_000, 1_000, 0), 1, ""),
        (
            Adaptive(depth=10, age=30, failures=4),
            seen(50, 60, 0.5),
            10,
            "x 10 for 50 jobs waiting and the oldest waiting for 60 s and 50 % of executions failing",
        ),
        # Only what adds something is told.
        (Adaptive(depth=10, age=30, failures=4), seen(depth=50), 6, "x 6 for 50 jobs waiting"),
        (Adaptive(depth=10, age=30, failures=4), seen(age_s=30), 2, "x 2 for the oldest waiting for 30 s"),
        (Adaptive(depth=10, age=30, failures=4), seen(failure_rate=0.5), 3, "x 3 for 50 % of executions failing"),
        (Adaptive(depth=10), seen(depth=150), 16, "x 16 for 150 jobs waiting"),
        (Adaptive(depth=10), seen(depth=151), 16, "x 16, the most allowed, for 151 jobs waiting"),
        (Adaptive(depth=10, most=3), seen(depth=999), 3, "x 3, the most allowed, for 999 jobs waiting"),
        (Adaptive(depth=10, most=1), seen(depth=999), 1, ""),
        (Adaptive(depth=10, most=None), seen(depth=1_000), 101, "x 101 for 1,000 or more jobs waiting"),
        (Adaptive(depth=1, most=None), seen(depth=1_000), 1_001, "x 1,001 for 1,000 or more jobs waiting"),
    ],
)
def test_factor_and_its_words(adaptive: Adaptive, signals: Signals, factor: float, words: str) -> None:
    """1 + waiting / depth + age of the oldest / age + failure rate x failures, cut to the most, and told with its reasons."""
    found, told = adaptive.factor(signals)
    assert found == pytest.approx(factor)
    assert told == words
    assert adaptive.filled().factor(signals) == adaptive.factor(signals)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"depth": 0}, "adaptive depth must be a whole number from 1 to 1000000000, not 0"),
        ({"depth": 2.5}, "adaptive depth must be a whole number from 1 to 1000000000, not 2.5"),
        ({"depth": True}, "adaptive depth must be a whole number from 1 to 1000000000, not True"),
        ({"age": 0}, "adaptive age must be a number of seconds from 0.001 to 31622400, not 0"),
        ({"age": "60"}, "adaptive age must be a number of seconds from 0.001 to 31622400, not '60'"),
        ({"failures": 0}, "adaptive failures must be a number from 0.001 to 1000, not 0"),
        ({"failures": math.nan}, "adaptive failures must be a number from 0.001 to 1000, not nan"),
        ({"failures": 1_000.5}, "adaptive failures must be a number from 0.001 to 1000, not 1000.5"),
        ({"most": 0.99}, "adaptive most must be a number from 1 to 1000, not 0.99"),
        ({"most": math.inf}, "adaptive most must be a number from 1 to 1000, not inf"),
    ],
)
def test_bad_numbers_are_refused_when_made(fields: dict[str, Any], message: str) -> None:
    """The message names the field and what is allowed."""
    with pytest.raises(BadPolicy) as refusal:
        Adaptive(**fields)
    assert str(refusal.value) == message


def test_edges_of_the_bounds_are_allowed() -> None:
    """And a number of another type becomes a plain one, so that it can be stored."""

    class Whole(int):
        pass

    assert Adaptive(1, 0.001, 0.001, 1).numbers() == [1, 0.001, 0.001, 1]
    assert Adaptive(10**9, 31_622_400, 1_000, 1_000).numbers() == [10**9, 31_622_400, 1_000, 1_000]
    assert type(Adaptive(Whole(3)).depth) is int


@pytest.mark.parametrize("adaptive", [Adaptive(), Adaptive(most=4), Adaptive(None, None, None, None)])
def test_adapting_to_nothing_is_refused(adaptive: Adaptive) -> None:
    """It would look like protection and be none. Shows when the policy is whole: a narrower one may set the most alone."""
    policy = RetryPolicy(adaptive=adaptive)
    with pytest.raises(BadPolicy) as refusal:
        policy.resolved()
    assert str(refusal.value) == (
        "adaptive needs at least one of depth, age and failures, such as Adaptive(depth=10); "
        "to switch it off, give the policy adaptive=None"
    )


def test_parts_merge_field_by_field() -> None:
    """Job over task over queue over app, inside the adaptive too; None switches a part off, and what nobody gives is off."""
    app, queue = RetryPolicy(adaptive=Adaptive(depth=10, age=60)), RetryPolicy(adaptive=Adaptive(depth=20, failures=3))
    task, job = RetryPolicy(adaptive=Adaptive(age=None, most=4)), RetryPolicy(max_retries=1)
    assert job.over(task).over(queue).over(app).resolved().adaptive == Adaptive(20, None, 3, 4)
    assert queue.over(app).resolved().adaptive == Adaptive(20, 60, 3, 16)
    assert app.resolved().adaptive == Adaptive(10, 60, None, 16)
    assert RetryPolicy(adaptive=Adaptive(most=None)).over(app).resolved().adaptive == Adaptive(10, 60, None, None)
    assert RetryPolicy().over(app).adaptive == app.adaptive
    assert app.over(RetryPolicy()).adaptive == Adaptive(10, 60, UNSET, UNSET)


def test_none_switches_adapting_off() -> None:
    """As with max_age, None is a value: it hides what wider policies say, wherever in the order it stands."""
    off, app = RetryPolicy(adaptive=None), RetryPolicy(adaptive=Adaptive(depth=10, failures=2))
    assert off.adaptive is None
    assert RetryPolicy().adaptive is UNSET
    assert off.over(app).resolved().adaptive is None
    job = RetryPolicy(adaptive=Adaptive(age=5))
    assert job.over(off).over(app).resolved().adaptive == Adaptive(None, 5, None, 16)
    assert job.over(off.over(app)).resolved().adaptive == Adaptive(None, 5, None, 16)


parts = st.none() | st.just(UNSET) | st.integers(1, 9)
layers = st.just(UNSET) | st.none() | st.builds(Adaptive, st.integers(1, 9), parts, parts, parts)


@given(layers, layers, layers)
def test_merge_does_not_depend_on_how_it_is_grouped(a: Any, b: Any, c: Any) -> None:
    """(a over b) over c is a over (b over c), with parts left out and layers switched off in any place."""
    first, second, third = (RetryPolicy(adaptive=layer) for layer in (a, b, c))
    assert first.over(second).over(third).resolved() == first.over(second.over(third)).resolved()


def test_raw_delay_is_without_congestion_unless_one_is_given() -> None:
    """A policy can be asked what it would do; asked plainly it answers for an idle queue."""
    policy = RetryPolicy(backoff=Exponential(1, 2, 60), adaptive=Adaptive(depth=10, age=5, failures=2))
    assert [policy.raw_delay(n) for n in (1, 2, 3, 9)] == [1, 2, 4, 60]
    assert [policy.raw_delay(n, depth=50) for n in (1, 2, 3, 9)] == [6, 12, 24, 60]
    assert policy.raw_delay(1, oldest_age=2.5) == 1.5
    assert policy.raw_delay(1, failure_rate=0.5) == 2
    assert policy.raw_delay(2, depth=5, oldest_age=5, failure_rate=1) == 9
    assert RetryPolicy().raw_delay(2, depth=1_000, oldest_age=1_000, failure_rate=1) == 2
    assert policy.delay(1, rng=Random(2)) == RetryPolicy(backoff=Exponential(1, 2, 60)).delay(1, rng=Random(2))


@pytest.mark.parametrize(
    ("backoff", "n", "depth", "delay", "how"),
    [
        (Exponential(2, 2, 60), 1, 50, 12, "exponential 2 s x 2^(1-1) = 2 s, x 6 for 50 jobs waiting = 12 s"),
        (Exponential(2, 2, 60), 1, 0, 2, "exponential 2 s x 2^(1-1) = 2 s"),
        (Exponential(2, 2, 60), 2, 140, 60, "exponential 2 s x 2^(2-1) = 4 s, x 15 for 140 jobs waiting = 60 s"),
        (Exponential(2, 2, 60), 2, 141, 60, "exponential 2 s x 2^(2-1) = 4 s, x 15.1 for 141 jobs waiting, capped at 60 s"),
        (Exponential(2, 2, 60), 9, 10, 60, "exponential 2 s x 2^(9-1), capped at 60 s, x 2 for 10 jobs waiting, capped at 60 s"),
        (Constant(5), 3, 50, 30, "constant 5 s, x 6 for 50 jobs waiting = 30 s"),
        (Delays(1, 200), 2, 50, 900, "delay 2 of the list, x 6 for 50 jobs waiting, capped at 900 s"),
    ],
)
def test_choice_tells_the_congestion(backoff: Backoff, n: int, depth: int, delay: float, how: str) -> None:
    """The raw delay, times the factor, cut to the cap again."""
    policy = RetryPolicy(backoff=backoff, jitter="none", adaptive=Adaptive(depth=10)).resolved()
    assert policy.choose(n, Random(1), None, seen(depth)) == (delay, how)


def test_jitter_is_drawn_from_the_grown_delay() -> None:
    """The same draw, of a delay that is six times longer; and the words come in the order of the steps."""
    policy = RetryPolicy(backoff=Exponential(2, 2, 60), adaptive=Adaptive(depth=10)).resolved()
    calm, _ = policy.choose(1, Random(1), None)
    delay, how = policy.choose(1, Random(1), None, seen(50))
    assert delay == pytest.approx(6 * calm)
    assert how == f"exponential 2 s x 2^(1-1) = 2 s, x 6 for 50 jobs waiting = 12 s, full jitter chose {delay:.3g} s"


def test_decorrelated_jitter_grows_too() -> None:
    """It draws from the delay before, so that counts as at least the first delay times the factor; it is not multiplied itself."""
    policy = RetryPolicy(backoff=Exponential(2, 2, 60), jitter="decorrelated", adaptive=Adaptive(depth=10)).resolved()

    def draws(previous: float | None, depth: int) -> list[float]:
        rng = Random(3)
        return [policy.choose(5, rng, previous, seen(depth))[0] for _ in range(500)]

    assert 5.9 < max(draws(None, 0)) <= 6
    assert 35 < max(draws(None, 50)) <= 36
    assert draws(1, 50) == draws(None, 50) == draws(12, 50)
    assert draws(15, 50) == draws(15, 0)
    assert min(draws(None, 50)) < 3  # the shortest stays the first delay, so that the spread stays wide
    assert lifted(None, 2, 100, 60) == lifted(7, 2, 100, 60) == 60


def test_times_is_short() -> None:
    """A factor never comes out as a power of ten."""
    assert [times(value) for value in (1.005, 2, 4.3, 99.96, 100.4, 999.7, 1_001, 10**6)] == [
        "1", "2", "4.3", "100", "100", "1,000", "1,001", "1,000,000",
    ]  # fmt: skip


# --- in the decision ---------------------------------------------------------------------------------------------------

CROWDED = RetryPolicy(jitter="none", adaptive=Adaptive(depth=10, age=60, failures=2))


def test_failure_in_a_congested_queue_waits_longer_and_says_why() -> None:
    """The signals reach the delay and the record."""
    change = settle(make_job(**SECOND), BAD, CROWDED, depth=50)
    assert (change.status, change.delay_us, change.last_delay_us) == ("pending", 12 * SECOND_US, 12 * SECOND_US)
    assert change.why == "failure 2 of at most 4 executions: exponential 1 s x 2^(2-1) = 2 s, x 6 for 50 jobs waiting = 12 s"
    assert change.record is not None
    assert (change.record.why, change.record.delay_us) == (change.why, change.delay_us)
    assert settle(make_job(**SECOND), BAD, CROWDED, oldest_age_us=60 * SECOND_US).delay_us == 4 * SECOND_US
    assert settle(make_job(**SECOND), BAD, CROWDED, failure_rate=1.0).delay_us == 6 * SECOND_US
    assert settle(make_job(**SECOND), BAD, RetryPolicy(jitter="none"), depth=50).delay_us == 2 * SECOND_US


def test_crash_in_a_congested_queue_waits_longer_too() -> None:
    """Its backoff is one like any other; the first one still has none."""
    change = settle(make_job(**CRASHED_ONCE), LeaseLost(), CROWDED, depth=50)
    assert (change.delay_us, change.last_delay_us) == (12 * SECOND_US, 12 * SECOND_US)
    assert settle(make_job(), LeaseLost(), CROWDED, depth=50).delay_us == 0


def test_wait_that_was_asked_for_is_kept_in_a_congestion() -> None:
    """Whoever names a time has a reason for it."""
    change = settle(make_job(**SECOND), ASKED_LATER, CROWDED, depth=50, failure_rate=1.0)
    assert change.delay_us == 15 * SECOND_US
    assert change == settle(make_job(**SECOND), ASKED_LATER, CROWDED)


def test_grown_delay_counts_for_the_maximum_age() -> None:
    """No retry is planned beyond it, however the delay came about."""
    job = make_job(max_age_us=10 * SECOND_US, **SECOND)
    assert settle(job, BAD, CROWDED).status == "pending"
    change = settle(job, BAD, CROWDED, depth=50)
    assert (change.status, change.error) == ("failed", NEW)
    assert change.why.startswith("too old: in 12 s it would be beyond its maximum age of 10 s; failure 2 of")


def test_stored_job_adapts_by_its_frozen_numbers() -> None:
    """What comes back from the store decides as the policy it was made of."""
    stored = thaw(freeze(CROWDED))
    for depth in (0, 5, 50, 1_000):
        assert settle(make_job(), BAD, stored, depth=depth) == settle(make_job(), BAD, CROWDED, depth=depth)


# --- properties --------------------------------------------------------------------------------------------------------

DEPTHS = st.integers(0, 1_000)
AGES = st.integers(-(10**9), 10**15)
RATES = st.floats(0, 1)


@given(adaptives(), backoffs(), JITTERS, FAILURE_NUMBERS, DEPTHS, AGES, RATES, st.none() | st.floats(0.001, 10**6), st.integers())
def test_cap_is_kept_and_delays_only_grow(
    adaptive: Adaptive, backoff: Backoff, jitter: str, n: int, depth: int, age_us: int, rate: float, previous: float | None, seed: int
) -> None:
    """Whatever the signals: at least what it would be in an idle queue, at most the cap, never under a millisecond."""
    policy = RetryPolicy(backoff=backoff, jitter=jitter, adaptive=adaptive, max_retries=1).resolved()
    signals = Signals(now_us=0, depth=depth, oldest_age_us=age_us, failure_rate=rate)
    factor, words = policy.congestion(signals)
    assert 1 <= factor <= adaptive.largest
    assert (words == "") == (factor == 1)
    calm, _ = policy.choose(n, Random(seed), previous)
    delay, how = policy.choose(n, Random(seed), previous, signals)
    assert 0.001 <= delay <= backoff.ceiling
    assert words in how
    raw = policy.raw_delay(n, depth=depth, oldest_age=age_us / SECOND_US, failure_rate=rate)
    assert policy.raw_delay(n) <= raw <= backoff.ceiling
    assert raw == pytest.approx(min(policy.raw_delay(n) * factor, backoff.ceiling))
    assert delay >= calm * (1 - 1e-9)  # the same draw, so it is not chance that compares them


@given(adaptives(), backoffs(), FAILURE_NUMBERS, DEPTHS, DEPTHS, AGES, RATES)
def test_delay_is_monotone_in_depth(adaptive: Adaptive, backoff: Backoff, n: int, one: int, other: int, age_us: int, rate: float) -> None:
    """More jobs waiting never make a retry come sooner."""
    fewer, more = sorted((one, other))
    policy = RetryPolicy(backoff=backoff, jitter="none", adaptive=adaptive).resolved()

    def delay(depth: int) -> float:
        return policy.choose(n, Random(1), None, Signals(now_us=0, depth=depth, oldest_age_us=age_us, failure_rate=rate))[0]

    assert delay(fewer) <= delay(more)


@given(adaptives(), backoffs(), FAILURE_NUMBERS, DEPTHS, RATES, RATES, st.integers(0, 10**12), st.integers(0, 10**12))
def test_delay_is_monotone_in_age_and_failure_rate(
    adaptive: Adaptive, backoff: Backoff, n: int, depth: int, rate: float, other_rate: float, age_us: int, other_age_us: int
) -> None:
    """Nor does an older backlog, or a downstream that fails more."""
    assume(rate <= other_rate and age_us <= other_age_us)
    policy = RetryPolicy(backoff=backoff, jitter="none", adaptive=adaptive).resolved()
    calmer = Signals(now_us=0, depth=depth, oldest_age_us=age_us, failure_rate=rate)
    worse = Signals(now_us=0, depth=depth, oldest_age_us=other_age_us, failure_rate=other_rate)
    assert policy.choose(n, Random(1), None, calmer)[0] <= policy.choose(n, Random(1), None, worse)[0]
