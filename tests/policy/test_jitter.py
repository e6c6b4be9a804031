from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mulligan.core.errors import BadPolicy
from mulligan.policy.backoff import Backoff, Constant, Exponential
from mulligan.policy.jitter import Jitter, checked_jitter, parse_jitter
from mulligan.policy.retry import RetryPolicy
from tests.policy.samples import FAILURE_NUMBERS, JITTERS, SECONDS, backoffs


class Scripted(Random):
    """A generator that draws a given place in the interval: 0 is its begin, 1 its end."""

    def __init__(self, place: float) -> None:
        super().__init__(0)
        self.place = place
        self.asked: list[tuple[float, float]] = []

    def uniform(self, a: float, b: float) -> float:
        self.asked.append((a, b))
        return a + (b - a) * self.place


def drawn(jitter: str, n: int, place: float, previous: float | None = None, clamp: bool | None = None) -> float:
    """What a policy of 2, 4, 8 ... up to 60 seconds waits when the generator draws that place."""
    policy = RetryPolicy(backoff=Exponential(2, 2, 60), jitter=jitter, clamp=clamp)
    return policy.delay(n, rng=Scripted(place), previous=previous)


@pytest.mark.parametrize(
    ("jitter", "n", "low", "high"),
    [
        ("none", 3, 8, 8),
        ("full", 3, 0.001, 8),
        ("equal", 3, 4, 8),
        ("percent(25)", 3, 6, 10),
        ("percent(100)", 3, 0.001, 16),
        ("percent(25)", 9, 45, 60),
        ("percent(25)", 5, 24, 40),
        ("bounded", 3, 2, 8),
        ("bounded", 1, 2, 2),
        ("bounded", 9, 2, 60),
        ("decorrelated", 3, 2, 6),
    ],
)
def test_m09_bounds_of_each_jitter(jitter: str, n: int, low: float, high: float) -> None:
    """M09: each jitter draws evenly between its bounds, at least a millisecond, and never above the cap."""
    assert drawn(jitter, n, 0) == pytest.approx(low)
    assert drawn(jitter, n, 1) == pytest.approx(high)
    assert drawn(jitter, n, 0.5) == pytest.approx(max(0.001, (low + high) / 2), abs=0.001)


@pytest.mark.parametrize(("previous", "low", "high"), [(None, 2, 6), (2, 2, 6), (10, 2, 30), (50, 2, 60), (0.1, 2, 2)])
def test_a24_decorrelated_builds_on_the_delay_before(previous: float | None, low: float, high: float) -> None:
    """A24: min(cap, U(base, 3 x previous)); the first time, and after a shorter one, previous is the base."""
    assert [drawn("decorrelated", 4, 0, previous), drawn("decorrelated", 4, 1, previous)] == [low, high]


def test_decorrelated_is_cut_after_the_draw() -> None:
    """The true formula draws beyond the cap and cuts then: the interval itself is not shortened."""
    rng = Scripted(0.5)
    assert RetryPolicy(backoff=Exponential(2, 2, 60), jitter="decorrelated").delay(1, rng=rng, previous=50) == 60
    assert rng.asked == [(2, 150)]


def test_e6_percent_stays_below_the_cap_unless_asked() -> None:
    """E6, O05: the interval ends at the cap, so no two jobs are cut to one instant; clamp=False gives the original's 75 s."""
    assert [drawn("percent(25)", 9, 0), drawn("percent(25)", 9, 1)] == [45, 60]
    assert [drawn("percent(25)", 9, 0, clamp=False), drawn("percent(25)", 9, 1, clamp=False)] == [45, 75]
    # The other jitters know no place above the cap.
    assert drawn("decorrelated", 9, 1, previous=59, clamp=False) == 60
    assert drawn("full", 9, 1, clamp=False) == 60


def test_a25_full_jitter_has_a_floor() -> None:
    """A25: a delay of zero would be a hot loop."""
    assert drawn("full", 1, 0) == 0.001
    assert RetryPolicy(backoff=Constant(0.001), jitter="full").delay(1, rng=Random(1)) == 0.001


def test_percent_around_a_constant_goes_both_ways() -> None:
    """A constant has no cap that would cut its jitter to one side."""
    policy = RetryPolicy(backoff=Constant(30), jitter="percent(10)")
    assert [policy.delay(1, rng=Scripted(0)), policy.delay(1, rng=Scripted(1))] == pytest.approx([27, 33])


def test_no_draw_where_there_is_no_choice() -> None:
    """Without an interval the generator is left alone, so a policy without jitter repeats exactly."""
    rng = Scripted(1)
    RetryPolicy(jitter="none").delay(3, rng=rng)
    RetryPolicy(jitter="bounded").delay(1, rng=rng)
    assert rng.asked == []


@given(backoffs(), JITTERS, FAILURE_NUMBERS, st.none() | SECONDS, st.booleans(), st.randoms(use_true_random=False))
def test_s16_jittered_delays_stay_in_bounds(
    backoff: Backoff, jitter: str, n: int, previous: float | None, clamp: bool, rng: Random
) -> None:
    """S16: at least a millisecond, at most the ceiling (1.25 and 2 times it only where the clamp is off), for any n and any draw."""
    delay = RetryPolicy(backoff=backoff, jitter=jitter, clamp=clamp).delay(n, rng=rng, previous=previous)
    over = 1 if clamp or not jitter.startswith("percent") else 1 + parse_jitter(jitter).percent / 100
    assert 0.001 <= delay <= backoff.ceiling * over * 1.000001
    shape = parse_jitter(jitter)
    longest = shape.longest(backoff.measure(n)[0], backoff.start, backoff.ceiling, previous, clamp)
    assert delay <= max(0.001, longest) * 1.000001


@pytest.mark.parametrize("name", ["none", "full", "equal", "bounded", "decorrelated", "percent(25)", "percent(0.5)"])
def test_names_are_kept_as_given(name: str) -> None:
    """A jitter reads and writes as its name."""
    assert checked_jitter(name) == name


def test_percent_reads_spaces_and_decimals() -> None:
    """percent( 25.0 ) is percent(25)."""
    assert checked_jitter("percent( 25.0 )") == "percent(25)"
    assert parse_jitter("percent(12.5)") == Jitter("percent", 12.5)
    assert parse_jitter("percent(100)").percent == 100


@pytest.mark.parametrize(
    "name",
    ["Full", "random", "", "percent", "percent()", "percent(0)", "percent(101)", "percent(-5)", "percent(nan)", "percent(25)x", "full "],
)
def test_a23_unknown_names_are_refused(name: str) -> None:
    """A23: an unknown jitter is an error when the policy is made, not silently none."""
    with pytest.raises(BadPolicy) as refusal:
        RetryPolicy(jitter=name)
    assert str(refusal.value) == (
        f"jitter must be one of none, full, equal, bounded, decorrelated or percent(P) with P above 0 and up to 100, not {name!r}"
    )


@pytest.mark.parametrize("value", [25, 0.25, ["full"], True])
def test_jitter_is_a_name(value: Any) -> None:
    """A bare number could mean many things."""
    with pytest.raises(BadPolicy) as refusal:
        RetryPolicy(jitter=value)
    assert str(refusal.value) == f"jitter must be a name, such as 'full' or 'percent(25)', not {value!r}"
