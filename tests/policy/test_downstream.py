from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mulligan.core.clock import SECOND_US
from mulligan.core.errors import BadSetting
from mulligan.core.groups import DOWNSTREAM
from mulligan.core.limits import TOKEN, Bucket
from mulligan.policy.breaker import Breaker, BreakerState, Calls, is_of_breaker, opened_by_hand
from mulligan.policy.budget import Rate, RetryBudget
from mulligan.policy.downstream import Downstream

T0 = 1_700_000_000 * SECOND_US
PLAIN = Downstream("d")
BARE = Downstream("d", breaker=None)
BAD = Calls(bad=10, began_us=T0)
OPEN, _ = PLAIN.reported(BreakerState(), BAD, T0)
SHUT = Bucket(key="breaker:d", rate_u=0, burst_u=0, part=DOWNSTREAM, value="d")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "no name"}, "downstream 'no name' is not a valid name"),
        ({"breaker": True}, "downstream d: breaker must be a Breaker(...) or None, not True"),
        ({"budget": 100}, "downstream d: budget must be a RetryBudget(...) or None, not 100"),
        ({"rate": "5/s"}, "downstream d: rate must be a Rate(...) or None, not '5/s'"),
        ({"budget": RetryBudget(per_s=1, each_tenant=True)}, "downstream d: its budget is one for all tenants"),
        ({"budget": RetryBudget(per_s=1, over="weighted")}, 'downstream d: over="weighted" belongs to a budget of the whole queue'),
    ],
)
def test_settings_that_make_no_sense(fields: dict[str, Any], message: str) -> None:
    """Refused when made, with what would do."""
    with pytest.raises(BadSetting) as refused:
        Downstream(**{"name": "d", **fields})
    assert str(refused.value).startswith(message)


def test_with_a_breaker_calls_and_time_turn_it() -> None:
    """What policy/breaker says, by this downstream's settings; by the default ones where none are given."""
    assert (OPEN.state, OPEN.until_us) == ("open", T0 + 30 * SECOND_US)
    assert PLAIN.passed(OPEN, T0 + 29 * SECOND_US) == (OPEN, [])
    half_open, [turn] = PLAIN.passed(OPEN, T0 + 30 * SECOND_US)
    assert (half_open.state, turn.kind) == ("half_open", "BREAKER_HALF_OPEN")
    quick = Downstream("d", breaker=Breaker(min_calls=2, open_for=1))
    assert quick.reported(BreakerState(), Calls(bad=2, began_us=T0), T0)[0].until_us == T0 + SECOND_US
    assert PLAIN.limits(OPEN, T0) == (SHUT,)
    assert PLAIN.wakes_at(OPEN, T0) == T0 + 30 * SECOND_US
    assert PLAIN.refusal(OPEN, T0, T0) == "it depends on d, and that breaker is open: 10 of 10 calls failed within 60 s"
    assert (PLAIN.refusal(BreakerState(), T0, T0), PLAIN.limits(BreakerState(), T0)) == ("", ())


def test_without_a_breaker_failures_turn_nothing() -> None:
    """Neither calls nor time; and what other workers have opened means nothing here."""
    assert BARE.reported(BreakerState(), BAD, T0) == (BreakerState(), [])
    assert BARE.passed(OPEN, T0 + 3_600 * SECOND_US) == (OPEN, [])
    assert (BARE.limits(OPEN, T0), BARE.refusal(OPEN, T0, T0), BARE.wakes_at(OPEN, T0)) == ((), "", None)
    assert BARE.seen(OPEN).state == "closed"


def test_without_a_breaker_a_retry_after_and_an_operator_still_hold() -> None:
    """Their word is not a matter of counting."""
    held, [turn] = BARE.reported(BreakerState(), Calls(bad=1, retry_after_us=9 * SECOND_US), T0)
    assert turn.kind == "DOWNSTREAM_HELD"
    assert (BARE.limits(held, T0), BARE.wakes_at(held, T0)) == ((SHUT,), T0 + 9 * SECOND_US)
    by_hand, _ = opened_by_hand(BreakerState(), T0, by="ann", reason="moving")
    assert (BARE.limits(by_hand, T0), BARE.seen(by_hand)) == ((SHUT,), by_hand)
    assert BARE.refusal(by_hand, T0, T0) == "it depends on d, and that breaker is open: moving"
    assert BARE.seen(replace(by_hand, manual=False)).state == "closed"


def test_budget_and_rate_hold_in_every_state() -> None:
    """They are limits of every claim, beside what the breaker allows; only the breaker's own come and go."""
    both = Downstream("d", budget=RetryBudget(per_s=3), rate=Rate(per_s=7))
    budget = Bucket(key="budget:downstream:d", rate_u=3 * TOKEN, burst_u=30 * TOKEN, lane="retry", part=DOWNSTREAM, value="d")
    rate = Bucket(key="rate:downstream:d", rate_u=7 * TOKEN, burst_u=7 * TOKEN, part=DOWNSTREAM, value="d")
    assert both.lasting_limits() == both.limits(BreakerState(), T0) == (budget, rate)
    assert both.limits(OPEN, T0) == (SHUT, budget, rate)
    assert [is_of_breaker(limit) for limit in both.limits(OPEN, T0)] == [True, False, False]
    assert (both.budget_bucket(), PLAIN.budget_bucket(), PLAIN.lasting_limits()) == (budget, None, ())
