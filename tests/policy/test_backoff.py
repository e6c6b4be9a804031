from __future__ import annotations

import math
import time
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from msgspec import UNSET

from mulligan.core.errors import BadPolicy
from mulligan.policy.backoff import Backoff, Constant, Custom, Delays, Exponential, Linear, Polynomial
from mulligan.policy.checks import COUNT_MAX, SECONDS_MAX, brief, checked_count, checked_function, name_of, span
from tests.policy.samples import FAILURE_NUMBERS, backoffs, custom


def waits(backoff: Backoff, count: int) -> list[float]:
    return [backoff.measure(n)[0] for n in range(1, count + 1)]


@given(backoffs(), FAILURE_NUMBERS, FAILURE_NUMBERS)
def test_s16_every_valid_backoff_is_total(backoff: Backoff, one: int, other: int) -> None:
    """S16: positive, finite, between start and ceiling, and never falling, for any n; the text comes along."""
    low, high = sorted((one, other))
    early, how = backoff.measure(low)
    late, _ = backoff.measure(high)
    assert 0.001 <= backoff.start <= early <= late <= backoff.ceiling <= SECONDS_MAX
    assert math.isfinite(late)
    assert how


@pytest.mark.parametrize(
    ("backoff", "expected"),
    [
        (Exponential(), [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900]),
        (Exponential(5, 2, 1_800), [5, 10, 20, 40, 80, 160, 320, 640, 1_280, 1_800, 1_800]),
        (Exponential(1, 4), [1, 4, 16, 64, 256, 900]),
        (Exponential(1, 1, 10), [1, 1, 1]),
        (Exponential(2, 1.5, 100), [2, 3, 4.5, 6.75]),
        (Exponential(7, 2, 7), [7, 7]),
        (Exponential(0.01, 2, 1), [0.01, 0.02, 0.04, 0.08]),
        (Polynomial(0.01, 2, 1), [0.01, 0.04, 0.09, 0.16]),
        (Linear(), [5, 10, 15, 20]),
        (Linear(5, 300), [5 * n for n in range(1, 60)] + [300, 300, 300]),
        (Polynomial(), [1, 4, 9, 16]),
        (Polynomial(2, 3, 100), [2, 16, 54, 100, 100]),
        (Polynomial(3, 1, 3), [3, 3]),
        (Polynomial(1, 0.5, 3), [1, math.sqrt(2), math.sqrt(3), 2]),
        (Constant(), [5, 5]),
        (Constant(30), [30, 30, 30]),
        (Delays(1, 5, 30), [1, 5, 30, 30, 30]),
        (Custom(lambda n: 7 * n, 20), [7, 14, 20, 20]),
    ],
)
def test_formulas_give_their_numbers(backoff: Backoff, expected: list[float]) -> None:
    """Each formula gives the numbers it says, up to its cap (M08, W03, O10)."""
    assert waits(backoff, len(expected)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("backoff", "n", "how"),
    [
        (Exponential(), 2, "exponential 1 s x 2^(2-1) = 2 s"),
        (Exponential(), 11, "exponential 1 s x 2^(11-1), capped at 900 s"),
        (Exponential(1, 2, 4), 3, "exponential 1 s x 2^(3-1), capped at 4 s"),
        (Exponential(5, 2, 1_800), 10, "exponential 5 s x 2^(10-1), capped at 1800 s"),
        (Exponential(0.25, 1.5), 3, "exponential 250 ms x 1.5^(3-1) = 562 ms"),
        (Exponential(1, 1), 3, "exponential 1 s x 1^(3-1) = 1 s"),
        (Linear(5, 300), 3, "linear 5 s x 3 = 15 s"),
        (Linear(5, 300), 60, "linear 5 s x 60, capped at 300 s"),
        (Polynomial(1, 2), 3, "polynomial 1 s x 3^2 = 9 s"),
        (Polynomial(5, 2), 14, "polynomial 5 s x 14^2, capped at 900 s"),
        (Polynomial(1, 2), 30, "polynomial 1 s x 30^2, capped at 900 s"),
        (Constant(30), 9, "constant 30 s"),
        (Delays(1, 5, 30), 2, "delay 2 of the list"),
        (Delays(1, 5, 30), 3, "delay 3 of the list"),
        (Delays(1, 5, 30), 4, "delay 3 of the list, the last one, which repeats"),
        (Custom(lambda n: 2.5 * n), 2, "the task's delay function gave 5 s"),
        (Custom(lambda n: 1_000), 2, "the task's delay function, capped at 900 s"),
    ],
)
def test_formulas_say_how_a_wait_came_about(backoff: Backoff, n: int, how: str) -> None:
    """The text beside each number is the formula with its numbers put in."""
    assert backoff.measure(n)[1] == how


def test_a20_e7_cap_comes_before_the_power() -> None:
    """A20, B5, E7: attempt 1025 does not overflow, and attempt 5e7 costs no giant integer."""
    assert Exponential().measure(1_025)[0] == 900
    assert Exponential(1, 4, SECONDS_MAX).measure(10**9)[0] == SECONDS_MAX
    started = time.process_time()
    for n in (50_000_000, 10**9, 10**4_000):
        assert Exponential(2, 2, 60).measure(n)[0] == 60
    assert time.process_time() - started < 0.1


@pytest.mark.parametrize("n", [0, -1, 1.0, True, "1", None])
@pytest.mark.parametrize("backoff", [Exponential(), Linear(), Polynomial(), Constant(), Delays(1), Custom(lambda n: 1)])
def test_e7_n_starts_at_one(backoff: Backoff, n: Any) -> None:
    """E7: n counts failures from 1; anything else is refused instead of giving half a delay."""
    with pytest.raises(BadPolicy, match=f"^n counts failures and starts at 1, not {n!r}$"):
        backoff.measure(n)


BAD_SECONDS = [math.nan, math.inf, -math.inf, -5, 0, 0.0009, SECONDS_MAX + 1, True, "5", [5]]


@pytest.mark.parametrize("value", BAD_SECONDS, ids=repr)
@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda value: Exponential(base=value), "base"),
        (lambda value: Exponential(cap=value), "cap"),
        (lambda value: Linear(step=value), "step"),
        (lambda value: Linear(cap=value), "cap"),
        (lambda value: Polynomial(base=value), "base"),
        (lambda value: Polynomial(cap=value), "cap"),
        (lambda value: Constant(delay=value), "delay"),
        (lambda value: Custom(lambda n: n, cap=value), "cap"),
    ],
)
def test_a21_bad_seconds_are_refused_when_made(make: Any, field: str, value: Any) -> None:
    """A21: NaN, infinity, negative, zero and non-numbers never get into a policy; the message names the field and the bounds."""
    with pytest.raises(BadPolicy) as refusal:
        make(value)
    assert str(refusal.value) == f"backoff {field} must be a number of seconds from 0.001 to 31622400, not {value!r}"


@pytest.mark.parametrize("value", [0.999, 0, -2, 1_001, math.nan, math.inf, True, "2"], ids=repr)
def test_a26_factor_below_one_is_refused(value: Any) -> None:
    """A26: a factor below 1 would shrink the delay."""
    with pytest.raises(BadPolicy) as refusal:
        Exponential(factor=value)
    assert str(refusal.value) == f"backoff factor must be a number from 1 to 1000, not {value!r}"


@pytest.mark.parametrize("value", [0, -1, 101, math.nan, math.inf, False, "2"], ids=repr)
def test_bad_power_is_refused(value: Any) -> None:
    """A power of zero or below would not grow, one above 100 has no use."""
    with pytest.raises(BadPolicy) as refusal:
        Polynomial(power=value)
    assert str(refusal.value) == f"backoff power must be a number from 0.001 to 100, not {value!r}"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Exponential(10, 2, 5), "backoff base (10 s) must not be above backoff cap (5 s); raise cap or lower base"),
        (lambda: Linear(10, 5), "backoff step (10 s) must not be above backoff cap (5 s); raise cap or lower step"),
        (lambda: Polynomial(10, 2, 5), "backoff base (10 s) must not be above backoff cap (5 s); raise cap or lower base"),
        (lambda: Delays(), "backoff Delays must list 1 to 1000 delays, not 0"),
        (lambda: Delays(*[1] * 1_001), "backoff Delays must list 1 to 1000 delays, not 1001"),
        (lambda: Delays(1, math.nan), "backoff delay 2 must be a number of seconds from 0.001 to 31622400, not nan"),
        (lambda: Delays(1, 30, 5), "backoff delay 3 (5 s) must not be below delay 2 (30 s) of Delays"),
        (lambda: custom("5"), "backoff function must be a function, not '5'"),  # type: ignore[arg-type]
    ],
)
def test_contradictions_are_refused_when_made(make: Any, message: str) -> None:
    """Fields that contradict each other are refused at once, and both are named."""
    with pytest.raises(BadPolicy) as refusal:
        make()
    assert str(refusal.value) == message


def test_longest_allowed_list_and_bounds_are_allowed() -> None:
    """What stands exactly at a bound is valid."""
    assert Delays(*[1] * 1_000).measure(2_000)[0] == 1
    assert Exponential(0.001, 1_000, SECONDS_MAX).measure(2)[0] == 1
    assert Polynomial(1, 100).measure(2)[0] == 900
    assert Polynomial(1, 0.001).measure(2)[0] == pytest.approx(2**0.001)


def test_async_delay_function_is_refused() -> None:
    """A coroutine function answers with a promise, not with seconds."""

    async def later(n: int) -> float:
        return n

    with pytest.raises(BadPolicy) as refusal:
        custom(later)
    assert str(refusal.value) == "backoff function must be a plain function, not the coroutine function later"


def test_m03_merge_takes_missing_fields_from_a_base_of_the_same_kind() -> None:
    """M03: per field, mine wins; a field left out or None is the base's; another kind wins as a whole."""
    assert Exponential(base=5).over(Exponential(1, 3, 60)) == Exponential(5, 3, 60)
    assert Exponential(None, 4, None).over(Exponential(1, 3, 60)) == Exponential(1, 4, 60)
    assert Exponential(cap=50).over(Exponential(base=2)) == Exponential(2, UNSET, 50)
    assert Exponential(cap=50).over(Linear(1, 20)) == Exponential(cap=50)
    assert Linear(step=3).over(Linear(1, 20)) == Linear(3, 20)
    assert Polynomial(power=3).over(Polynomial(2, 2, 20)) == Polynomial(2, 3, 20)
    assert Constant().over(Constant(9)) == Constant(9)
    assert Delays(1, 2).over(Delays(3)) == Delays(1, 2)


def test_merge_of_functions_keeps_the_nearer_function() -> None:
    """The function is mine; its cap comes from a base that is a function too, and from no other kind."""

    def mine(n: int) -> float:
        return n

    def theirs(n: int) -> float:
        return 2 * n

    assert Custom(mine).over(Custom(theirs, 50)) == Custom(mine, 50)
    assert Custom(mine, 40).over(Custom(theirs, 50)) == Custom(mine, 40)
    assert Custom(mine).over(Exponential(1, 2, 50)) == Custom(mine)


def test_conflict_after_a_merge_is_refused_and_both_fields_are_named() -> None:
    """A base above the inherited cap shows only when both meet."""
    with pytest.raises(BadPolicy, match=r"backoff base \(100 s\) must not be above backoff cap \(60 s\)"):
        Exponential(base=100).over(Exponential(cap=60))
    with pytest.raises(BadPolicy, match=r"backoff step \(1000 s\) must not be above backoff cap \(900 s\)"):
        Linear(step=1_000).filled()


def test_a22_none_means_left_out() -> None:
    """A22: null in a policy is the default, not an error."""
    assert Exponential(None, None, None) == Exponential()
    assert Exponential(None, None, None).filled() == Exponential(1, 2, 900)
    assert Linear(None).filled() == Linear(5, 900)
    assert Polynomial(None).filled() == Polynomial(1, 2, 900)
    assert Constant(None).filled() == Constant(5)
    assert Delays(4).filled() == Delays(4)
    assert custom(abs).filled().cap == 900


def test_ceiling_leaves_jitter_room_where_there_is_no_cap() -> None:
    """A constant and a list have no cap of their own: the default one, or their longest delay, bounds their jitter."""
    assert [Constant(30).ceiling, Constant(5_000).ceiling] == [900, 5_000]
    assert [Delays(1, 30).ceiling, Delays(1, 5_000).ceiling] == [900, 5_000]
    assert [Exponential(cap=60).ceiling, Custom(abs, 60).ceiling] == [60, 60]
    assert [Exponential(5).start, Linear(4).start, Delays(3, 4).start, custom(abs).start, custom(abs, 0.5).start] == [5, 4, 3, 1, 0.5]


@pytest.mark.parametrize(
    ("answer", "trouble"),
    [
        (math.nan, "answered nan"),
        (math.inf, "answered inf"),
        (-1, "answered -1"),
        (True, "answered True"),
        ("12", "answered '12'"),
        (None, "answered None"),
        ("x" * 500, "answered '" + "x" * 79),
    ],
)
def test_misbehaving_function_gives_way_to_the_numbers(answer: Any, trouble: str) -> None:
    """Whatever a delay function answers, a failure gets its delay, and the text says why it is another."""
    delay, how = custom(lambda n: answer, 60).measure(3)
    assert delay == 4
    assert how == f"the task's delay function {trouble}, so the frozen numbers decide: exponential 1 s x 2^(3-1) = 4 s"


@pytest.mark.parametrize("problem", [ZeroDivisionError, SystemExit, RecursionError])
def test_raising_function_gives_way_to_the_numbers(problem: type[BaseException]) -> None:
    """A delay function that raises must not strand the job."""

    def broken(n: int) -> float:
        raise problem

    delay, how = Custom(broken).measure(2)
    assert delay == 2
    assert how.startswith(f"the task's delay function raised {problem.__name__}, so the frozen numbers decide: exponential")


def test_function_answers_are_cut_to_what_is_allowed() -> None:
    """Zero becomes a millisecond, anything above the cap becomes the cap, however large the integer."""
    assert custom(lambda n: 0).measure(1)[0] == 0.001
    assert custom(lambda n: 10**400).measure(1) == (900, "the task's delay function, capped at 900 s")
    assert custom(lambda n: 900).measure(1) == (900, "the task's delay function gave 900 s")
    assert custom(lambda n: 100, 0.5).measure(1)[0] == 0.5
    assert custom(lambda n: "no", 0.5).measure(9)[0] == 0.5
    assert isinstance(custom(lambda n: 3).measure(1)[0], float)


def test_function_whose_answer_cannot_be_shown_is_survived() -> None:
    """Even the repr of an answer may raise."""

    class Shy:
        def __repr__(self) -> str:
            raise ValueError

    assert "answered (unreadable: ValueError), so" in custom(lambda n: Shy()).measure(1)[1]
    assert brief(3) == "3"


def test_numbers_of_a_subclass_become_plain() -> None:
    """A number of a subclass, as numerical libraries have them, is kept as the plain type, so that it can be stored."""

    class Float(float):
        pass

    class Int(int):
        pass

    value = Exponential(Float(1.5), Int(2))
    assert [type(value.base), type(value.factor)] == [float, int]
    assert type(checked_count(Int(4), "x", 0)) is int


def test_delays_is_a_frozen_value() -> None:
    """Delays compares, hashes and prints like the Struct it cannot be, and refuses to change."""
    value = Delays(1, 5, 30)
    assert value == Delays(1, 5, 30)
    assert value != Delays(1, 5)
    assert value != (1, 5, 30)
    assert hash(value) == hash(Delays(1, 5, 30)) != hash(Delays(1, 5))
    assert repr(value) == "Delays(1, 5, 30)"
    assert value.numbers() == [1, 5, 30]
    with pytest.raises(AttributeError, match="^Delays is frozen; make a new one instead of setting seconds to 3$"):
        value.seconds = 3  # type: ignore[assignment]
    assert value.seconds == (1, 5, 30)


@pytest.mark.parametrize("value", [-1, 1.0, True, "3", None, COUNT_MAX + 1])
def test_counts_are_whole_numbers_within_bounds(value: Any) -> None:
    """A count is a whole number; the message names the field and what is allowed."""
    with pytest.raises(BadPolicy) as refusal:
        checked_count(value, "max_retries", 0)
    assert str(refusal.value) == f"max_retries must be a whole number from 0 to 1000000000, not {value!r}"
    assert [checked_count(0, "x", 0), checked_count(COUNT_MAX, "x", 0)] == [0, COUNT_MAX]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.001, "1 ms"),
        (0.2687, "269 ms"),
        (0.9994, "999 ms"),
        (1, "1 s"),
        (1.337, "1.34 s"),
        (59.96, "60 s"),
        (60, "60 s"),
        (60.4, "60 s"),
        (900, "900 s"),
        (1_234.5678, "1235 s"),
        (7_199, "7199 s"),
        (7_200, "2 h"),
        (9_000, "2.5 h"),
        (36_190, "10.1 h"),
        (172_799, "48 h"),
        (172_800, "2 days"),
        (366 * 86_400 * 10, "3,660 days"),
    ],
)
def test_spans_read_well(seconds: float, text: str) -> None:
    """A span is written in the unit people would choose."""
    assert span(seconds) == text


def test_names_of_classes_functions_and_things() -> None:
    """A callable object has no name of its own; its class has."""

    class Rule:
        __name__ = ""

        def __call__(self, n: int) -> int:
            return n

    assert [name_of(ValueError), name_of(len), name_of(Rule())] == ["ValueError", "len", "Rule"]
    assert name_of(partial(len)) == "partial"
    assert checked_function(Rule(), "x")(4) == 4
