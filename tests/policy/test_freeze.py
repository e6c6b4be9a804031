from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mulligan.policy import retry
from mulligan.policy.adaptive import Adaptive
from mulligan.policy.backoff import Backoff, Constant, Delays, Exponential, Linear, Polynomial
from mulligan.policy.retry import RetryPolicy, freeze, thaw
from tests.policy.samples import JITTERS, adaptives, backoffs, custom


def is_fatal(error: BaseException) -> bool:
    return "fatal" in str(error)


def test_default_policy_freezes_to_almost_nothing() -> None:
    """The commonest policy costs two bytes per job; others tell what differs."""
    assert freeze(RetryPolicy()) == "{}"
    assert freeze(RetryPolicy(backoff=Exponential(1.0, 2.0, 900.0))) == "{}"
    assert freeze(RetryPolicy(max_retries=5, backoff=Exponential(base=2))) == '{"retries":5,"backoff":["exponential",2,2,900]}'
    full = RetryPolicy(
        max_retries=None,
        backoff=Delays(1, 2.5),
        jitter="percent(25)",
        clamp=False,
        adaptive=Adaptive(depth=10, failures=0.5),
        max_age=60,
        max_crashes=2,
        max_snoozes=0,
        max_retry_after=7,
        give_up_on=ValueError,
    )
    assert freeze(full) == (
        '{"retries":null,"backoff":["delays",1,2.5],"jitter":"percent(25)","clamp":false,"adaptive":[10,null,0.5,16],"age":60,"crashes":2,"snoozes":0,'
        '"retry_after":7,"rules":true}'
    )


def test_e25_defaults_of_the_stored_form_are_those_of_the_policy() -> None:
    """E25: what the text leaves out must mean what it meant when it was written: today, the defaults."""
    assert thaw("{}") == RetryPolicy().resolved()


@given(
    backoffs(),
    JITTERS,
    st.integers(0, 10**9),
    st.none() | st.floats(0.001, 10**6),
    st.integers(1, 50),
    st.integers(0, 500),
    st.floats(0.001, 10**5),
    st.booleans(),
    st.none() | adaptives(),
)
def test_numbers_survive_the_store(
    backoff: Backoff,
    jitter: str,
    retries: int,
    age: float | None,
    crashes: int,
    snoozes: int,
    after: float,
    clamp: bool,
    adaptive: Adaptive | None,
) -> None:
    """Frozen and read back, a policy of numbers is the same, to the last digit."""
    policy = RetryPolicy(
        max_retries=retries,
        backoff=backoff,
        jitter=jitter,
        max_age=age,
        max_crashes=crashes,
        max_snoozes=snoozes,
        max_retry_after=after,
        clamp=clamp,
        adaptive=adaptive,
    ).resolved()
    assert thaw(freeze(policy)) == policy
    assert thaw(freeze(thaw(freeze(policy)))) == policy


@pytest.mark.parametrize(
    "rules", [{"give_up_on": ValueError}, {"retry_on": ()}, {"snooze_on": {ValueError: 3}}, {"give_up_on": is_fatal, "retry_on": KeyError}]
)
def test_rules_come_from_the_code_at_hand(rules: dict[str, Any]) -> None:
    """Rules are code: not in the text, but the text knows that there were some, so their absence can be told."""
    policy = RetryPolicy(max_retries=7, **rules)
    text = freeze(policy)
    assert text == '{"retries":7,"rules":true}'
    here = thaw(text, policy)
    assert here == policy.resolved()
    assert not here.code_missing
    elsewhere = thaw(text, None)
    assert elsewhere.code_missing
    assert (elsewhere.max_retries, elsewhere.give_up_on, elsewhere.retry_on, elsewhere.snooze_on) == (7, (), None, ())
    assert freeze(elsewhere) == text


def test_code_adds_rules_and_leaves_the_frozen_numbers_alone() -> None:
    """The numbers of the enqueue hold, even where the code has other ones by now; its rules apply."""
    code = RetryPolicy(max_retries=50, backoff=Exponential(9), jitter="none", give_up_on=ValueError)
    policy = thaw('{"retries":2}', code)
    assert (policy.max_retries, policy.backoff, policy.jitter) == (2, Exponential(1, 2, 900), "full")
    assert policy.give_up_on == (ValueError,)
    assert not policy.code_missing
    assert not thaw('{"retries":2}').code_missing


def test_adapting_is_frozen_with_the_numbers() -> None:
    """How a waiting job adapts does not change with the code, and a text from before there was adapting still means none."""
    code = RetryPolicy(adaptive=Adaptive(depth=3))
    assert thaw('{"retries":2}', code).adaptive is None
    assert thaw('{"adaptive":[10,null,null,16]}', code).adaptive == Adaptive(10, None, None, 16)
    assert thaw('{"adaptive":[10]}').adaptive == Adaptive(10, None, None, 16)
    assert thaw('{"adaptive":[null,2.5,null,null]}').adaptive == Adaptive(None, 2.5, None, None)
    assert freeze(RetryPolicy(adaptive=None)) == "{}"


def test_delay_function_comes_from_the_code_at_hand() -> None:
    """A function is found by its task; where it is missing the numbers decide, and the policy says so."""
    policy = RetryPolicy(backoff=custom(lambda n: 7, 60), jitter="none")
    text = freeze(policy)
    assert text == '{"backoff":["custom",60],"jitter":"none"}'
    here = thaw(text, RetryPolicy(backoff=lambda n: 8))
    assert here.choose(3, Random(1), None) == (8, "the task's delay function gave 8 s")
    assert here.backoff.ceiling == 60
    for code in (None, RetryPolicy(), RetryPolicy(backoff=Constant(3))):
        delay, how = thaw(text, code).choose(3, Random(1), None)
        assert delay == 4
        assert how == "exponential 1 s x 2^(3-1) = 4 s; the task's delay function is not at hand, so the frozen numbers decide"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "[]",
        "null",
        '{"retries":"many"}',
        '{"retries":-1}',
        '{"backoff":[]}',
        '{"backoff":["exponential","x"]}',
        '{"backoff":["exponential",1,2,3,4]}',
        '{"backoff":["exponential",NaN]}',
        '{"backoff":["exponential",100,2,50]}',
        '{"backoff":["custom","x"]}',
        '{"backoff":["custom",1,2]}',
        '{"backoff":[["x"]]}',
        '{"backoff":["spiral",1]}',
        '{"jitter":"wild"}',
        '{"crashes":0}',
        '{"adaptive":10}',
        '{"adaptive":[]}',
        '{"adaptive":[null,null,null,16]}',
        '{"adaptive":["x"]}',
        '{"adaptive":[0]}',
        '{"adaptive":[10,null,null,16,1]}',
        '{"v":2}',
        '{"age":-1}',
        "[" * 5_000,
        '{"retries":"\ud800"}',
    ],
)
def test_a21_unreadable_text_never_raises(text: str) -> None:
    """A21: in the failure path a broken policy means the defaults, with a note; the rules of the code still hold."""
    policy = thaw(text, RetryPolicy(give_up_on=ValueError))
    assert policy.note.startswith("the job's stored policy could not be read (")
    assert policy.note.endswith("), so the defaults decide")
    assert (policy.max_retries, policy.backoff, policy.max_crashes, policy.adaptive) == (3, Exponential(1, 2, 900), 3, None)
    assert policy.give_up_on == (ValueError,)
    assert policy.choose(1, Random(1), None)[1].endswith(f"; {policy.note}")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"v":2}', "it is of version 2, this is version 1"),
        ('{"backoff":["spiral",1]}', "backoff 'spiral' is not known"),
        ('{"retries":"many"}', "Expected `int | null`, got `str` - at `$.retries`"),
    ],
)
def test_note_names_the_reason(text: str, reason: str) -> None:
    """The note says what was wrong with the text."""
    assert thaw(text).note == f"the job's stored policy could not be read ({reason}), so the defaults decide"


def test_unknown_fields_are_passed_over() -> None:
    """A later release may add a field without breaking the workers of this one."""
    assert thaw('{"retries":4,"colour":"red"}').max_retries == 4


def test_thawed_policies_are_kept_by_text_and_code() -> None:
    """The hot path costs a look-up: the same text and code give the same object, other code another one."""
    code, other = RetryPolicy(give_up_on=ValueError), RetryPolicy(give_up_on=ValueError)
    assert thaw('{"retries":11}', code) is thaw('{"retries":11}', code)
    assert thaw('{"retries":11}', code) is not thaw('{"retries":11}', other)
    assert thaw('{"retries":11}', code) is not thaw('{"retries":12}', code)


def test_kept_policies_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts without end do not fill the memory."""
    monkeypatch.setattr(retry, "THAWED_MAX", 3)
    monkeypatch.setattr(retry, "_thawed", {})
    for number in range(3):
        thaw(f'{{"retries":{number}}}')
    assert len(retry._thawed) == 3
    assert thaw('{"retries":77}').max_retries == 77
    assert len(retry._thawed) == 1


def test_polynomial_is_stored_by_its_name() -> None:
    """Each kind of backoff has a name of its own in the text."""
    shapes: list[Backoff] = [Exponential(2), Linear(2), Polynomial(2), Constant(2), Delays(2)]
    assert [freeze(RetryPolicy(backoff=shape)) for shape in shapes] == [
        '{"backoff":["exponential",2,2,900]}',
        '{"backoff":["linear",2,900]}',
        '{"backoff":["polynomial",2,2,900]}',
        '{"backoff":["constant",2]}',
        '{"backoff":["delays",2]}',
    ]
