from __future__ import annotations

import math
import warnings
from random import Random
from typing import Any

import pytest
from msgspec import UNSET

from mulligan.core.errors import BadPolicy
from mulligan.policy import retry
from mulligan.policy.adaptive import Adaptive
from mulligan.policy.backoff import Custom, Exponential, Linear
from mulligan.policy.retry import ResolvedPolicy, RetryPolicy


def is_fatal(error: BaseException) -> bool:
    return "fatal" in str(error)


def test_defaults_are_those_of_the_design() -> None:
    """O02: nothing said means 3 retries, 1 s doubling up to 900 s, full jitter, 3 crashes, 100 snoozes, 1 h of Retry-After."""
    assert RetryPolicy().resolved() == ResolvedPolicy(
        max_retries=3,
        backoff=Exponential(1, 2, 900),
        jitter="full",
        clamp=True,
        give_up_on=(),
        retry_on=None,
        snooze_on=(),
        max_age=None,
        max_crashes=3,
        max_snoozes=100,
        max_retry_after=3_600,
        adaptive=None,
    )


def test_m03_policies_merge_field_by_field() -> None:
    """M03: job over task over queue over app; the nearest one that says something wins, per field."""
    app = RetryPolicy(max_retries=9, jitter="none", max_age=100, max_crashes=2)
    queue = RetryPolicy(backoff=Exponential(base=5, cap=50), max_snoozes=4)
    task = RetryPolicy(backoff=Exponential(factor=3), give_up_on=(ValueError,), max_retry_after=60, clamp=False)
    job = RetryPolicy(max_retries=1, max_age=None)
    merged = job.over(task).over(queue).over(app).resolved()
    assert merged == ResolvedPolicy(
        max_retries=1,
        backoff=Exponential(5, 3, 50),
        jitter="none",
        clamp=False,
        give_up_on=(ValueError,),
        retry_on=None,
        snooze_on=(),
        max_age=None,
        max_crashes=2,
        max_snoozes=4,
        max_retry_after=60,
    )


def test_merge_does_not_depend_on_how_it_is_grouped() -> None:
    """(a over b) over c is a over (b over c)."""
    a = RetryPolicy(backoff=Exponential(base=3), snooze_on={ValueError: 5})
    b = RetryPolicy(backoff=Exponential(cap=50), retry_on=[KeyError])
    c = RetryPolicy(backoff=Exponential(1, 2, 9), jitter="equal", retry_on=())
    assert a.over(b).over(c) == a.over(b.over(c))


def test_a22_none_is_not_given_except_where_it_is_a_value() -> None:
    """A22: None takes the default, but max_retries=None is unlimited and max_age=None is no maximum, even over a base that has one."""
    nothing = RetryPolicy(
        backoff=None,
        jitter=None,
        clamp=None,
        give_up_on=None,
        retry_on=None,
        snooze_on=None,
        max_crashes=None,
        max_snoozes=None,
        max_retry_after=None,
    )
    assert nothing == RetryPolicy()
    assert RetryPolicy(max_retries=None).over(RetryPolicy(max_retries=3)).max_retries is None
    assert RetryPolicy(max_age=None).over(RetryPolicy(max_age=3)).max_age is None
    assert RetryPolicy().over(RetryPolicy(max_age=3)).max_age == 3


def test_another_kind_of_backoff_replaces_the_whole() -> None:
    """A cap of one formula says nothing about another."""
    assert RetryPolicy(backoff=Linear(3)).over(RetryPolicy(backoff=Exponential(cap=5))).resolved().backoff == Linear(3, 900)


def test_conflict_that_shows_after_merging_is_refused() -> None:
    """A base above the inherited cap is refused where the two meet, and both fields are named."""
    above_default = RetryPolicy(backoff=Exponential(base=1_000))
    with pytest.raises(BadPolicy, match=r"base \(1000 s\) must not be above backoff cap \(900 s\)"):
        above_default.resolved()
    with pytest.raises(BadPolicy, match=r"base \(1000 s\) must not be above backoff cap \(60 s\)"):
        above_default.over(RetryPolicy(backoff=Exponential(cap=60)))
    assert above_default.over(RetryPolicy(backoff=Exponential(cap=2_000))).resolved().backoff == Exponential(1_000, 2, 2_000)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_retries": -1}, "max_retries must be a whole number from 0 to 1000000000, not -1"),
        ({"max_retries": True}, "max_retries must be a whole number from 0 to 1000000000, not True"),
        ({"max_retries": 2.0}, "max_retries must be a whole number from 0 to 1000000000, not 2.0"),
        ({"max_crashes": 0}, "max_crashes must be a whole number from 1 to 1000000000, not 0"),
        ({"max_snoozes": -1}, "max_snoozes must be a whole number from 0 to 1000000000, not -1"),
        ({"max_age": 0}, "max_age must be a number of seconds from 0.001 to 31622400, not 0"),
        ({"max_age": math.nan}, "max_age must be a number of seconds from 0.001 to 31622400, not nan"),
        ({"max_retry_after": math.inf}, "max_retry_after must be a number of seconds from 0.001 to 31622400, not inf"),
        ({"adaptive": 10}, "adaptive must be Adaptive(...), such as Adaptive(depth=10), not 10"),
        ({"adaptive": Adaptive}, f"adaptive must be Adaptive(...), such as Adaptive(depth=10), not {Adaptive!r}"),
        ({"clamp": 1}, "clamp must be True or False, not 1"),
        ({"backoff": 5}, "backoff must be Exponential, Linear, Polynomial, Constant, Delays or a function of n, not 5"),
        (
            {"backoff": Exponential},
            "backoff must be Exponential, Linear, Polynomial, Constant, Delays or a function of n, "
            "not <class 'mulligan.policy.backoff.Exponential'>",
        ),
        (
            {"give_up_on": "ValueError"},
            "give_up_on must name exception classes or predicates (functions from an exception to true or false), not 'ValueError'",
        ),
        ({"retry_on": (int,)}, "retry_on must name exception classes or predicates; int is a class, but not of exceptions"),
        ({"snooze_on": {ValueError: -1}}, "snooze_on seconds must be a number of seconds from 0.001 to 31622400, not -1"),
        (
            {"snooze_on": {"x": 1}},
            "snooze_on must name exception classes or predicates (functions from an exception to true or false), not 'x'",
        ),
    ],
)
def test_bad_fields_are_refused_when_made(fields: dict[str, Any], message: str) -> None:
    """A policy that could not work is refused before a job can meet it; the message names the field and what is allowed."""
    with pytest.raises(BadPolicy) as refusal:
        RetryPolicy(**fields)
    assert str(refusal.value) == message


def test_async_predicates_are_refused() -> None:
    """A coroutine is always true, so an async predicate would match every error."""

    async def later(error: BaseException) -> bool:
        return False

    with pytest.raises(BadPolicy, match="^give_up_on must be a plain function, not the coroutine function later$"):
        RetryPolicy(give_up_on=[later])  # type: ignore[list-item]


def test_rules_may_be_given_in_any_handy_form() -> None:
    """One rule alone, a list, a set; snoozes as a mapping, as pairs, or alone for the default 30 s."""
    assert RetryPolicy(give_up_on=ValueError).give_up_on == (ValueError,)
    assert RetryPolicy(give_up_on=is_fatal).give_up_on == (is_fatal,)
    assert RetryPolicy(retry_on=[KeyError, is_fatal]).retry_on == (KeyError, is_fatal)
    assert RetryPolicy(retry_on={KeyError}).retry_on == (KeyError,)  # type: ignore[arg-type]
    assert RetryPolicy(retry_on=frozenset({KeyError})).retry_on == (KeyError,)  # type: ignore[arg-type]
    assert RetryPolicy(snooze_on={KeyError: 9, is_fatal: 8}).snooze_on == ((KeyError, 9), (is_fatal, 8))
    mixed: Any = [(KeyError, 9), OSError]
    assert RetryPolicy(snooze_on=mixed).snooze_on == ((KeyError, 9), (OSError, 30))
    assert RetryPolicy(snooze_on={KeyError}).snooze_on == ((KeyError, 30),)  # type: ignore[arg-type]
    assert RetryPolicy(snooze_on=KeyError).snooze_on == ((KeyError, 30),)
    assert RetryPolicy(retry_on=()).resolved().retry_on == ()


def test_o04_function_as_backoff_is_wrapped() -> None:
    """O04, O10: a plain function replaces the delay."""
    policy = RetryPolicy(backoff=lambda n: min(5 * n, 300), jitter="none")
    assert isinstance(policy.backoff, Custom)
    assert [policy.raw_delay(n) for n in (1, 2, 60, 61, 10**6)] == [5, 10, 300, 300, 300]
    assert policy.delay(3, rng=Random(1)) == 15


def test_raw_delay_and_delay_are_public() -> None:
    """They work on a policy as written, without resolving it first, and repeat under the same seed."""
    policy = RetryPolicy(max_retries=None, backoff=Exponential(base=2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [policy.raw_delay(n) for n in (1, 2, 3)] == [2, 4, 8]
        assert policy.delay(3, rng=Random(5)) == policy.filled().delay(3, rng=Random(5))
    assert policy.delay(3, rng=Random(5)) == policy.delay(3, rng=Random(5)) != policy.delay(3, rng=Random(6))
    assert 0.001 <= policy.delay(3, rng=Random(5)) <= 8
    with pytest.raises(BadPolicy, match="n counts failures"):
        policy.raw_delay(0)


def test_e3_unlimited_retries_warn_unless_a_maximum_age_bounds_them() -> None:
    """E3: None is unlimited, it works, and it is not silent."""
    with pytest.warns(UserWarning, match="^max_retries=None without max_age retries for ever; set max_age to bound it$") as caught:
        assert RetryPolicy(max_retries=None).resolved().max_retries is None
    assert caught[0].filename != retry.__file__  # it points at the caller
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert RetryPolicy(max_retries=None, max_age=60).resolved().max_retries is None
        assert RetryPolicy(max_retries=None).filled().resolved().max_retries is None


def test_resolved_policy_is_itself_resolved() -> None:
    """What is resolved stays what it is, so the hot path pays nothing."""
    policy = RetryPolicy(max_age=2.5, max_retry_after=1.5).resolved()
    assert policy.resolved() is policy
    assert policy.filled() is policy
    assert [policy.max_age_us, policy.max_retry_after_us] == [2_500_000, 1_500_000]
    assert RetryPolicy().resolved().max_age_us is None
    assert policy.over(RetryPolicy(max_retries=7)).max_retries == 3


def test_choice_explains_itself() -> None:
    """The delay and the sentence about it are made together."""
    plain = RetryPolicy(jitter="none").resolved()
    assert plain.choose(2, Random(1), None) == (2, "exponential 1 s x 2^(2-1) = 2 s")
    delay, how = RetryPolicy(jitter="percent(25)").resolved().choose(2, Random(1), None)
    assert how == f"exponential 1 s x 2^(2-1) = 2 s, percent(25) jitter chose {delay:.3g} s"
    assert RetryPolicy(jitter="decorrelated").resolved().choose(2, Random(3), 9)[0] > 3


def test_fields_left_out_stay_left_out() -> None:
    """UNSET is kept until a policy is resolved, so that merging can see it."""
    assert RetryPolicy().max_retries is UNSET
    assert RetryPolicy().over(RetryPolicy()).give_up_on is UNSET
