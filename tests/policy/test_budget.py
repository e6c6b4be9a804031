from __future__ import annotations

import math
from typing import Any

import pytest

from mulligan.core.errors import BadSetting
from mulligan.core.groups import DOWNSTREAM
from mulligan.core.limits import Bucket
from mulligan.policy.budget import Rate, RetryBudget


@pytest.mark.parametrize(
    ("rate", "each_s", "burst_u"),
    [
        (Rate(per_s=5), 5, 5_000_000),
        (Rate(per_minute=100), 100 / 60, 1_666_667),
        (Rate(per_hour=1), 1 / 3_600, 1_000_000),
        (Rate(per_s=5, burst=2.5), 5, 2_500_000),
    ],
)
def test_rates(rate: Rate, each_s: float, burst_u: int) -> None:
    """However it is written, a rate is starts per second, and by default a second's worth of them may come at once."""
    assert rate.each_s == each_s
    assert rate.bucket("k", part=DOWNSTREAM, value="v", lane="fresh") == Bucket(
        key="k", rate_u=round(each_s * 1e6), burst_u=burst_u, part=DOWNSTREAM, value="v", lane="fresh"
    )


@pytest.mark.parametrize(
    ("budget", "bucket"),
    [
        (RetryBudget(per_s=3), Bucket(key="k", rate_u=3_000_000, burst_u=30_000_000, lane="retry")),
        (RetryBudget(per_minute=100), Bucket(key="k", rate_u=1_666_667, burst_u=16_666_667, lane="retry")),
        (RetryBudget(per_minute=1), Bucket(key="k", rate_u=16_667, burst_u=1_000_000, lane="retry")),
        (RetryBudget(per_s=3, burst=5), Bucket(key="k", rate_u=3_000_000, burst_u=5_000_000, lane="retry")),
        (
            RetryBudget(ratio=0.2, min_per_s=10),
            Bucket(key="k", rate_u=10_000_000, burst_u=100_000_000, ratio_u=200_000, lane="retry"),
        ),
        (RetryBudget(ratio=0.1), Bucket(key="k", rate_u=0, burst_u=10_000_000, ratio_u=100_000, lane="retry")),
        (RetryBudget(ratio=0.001), Bucket(key="k", rate_u=0, burst_u=1_000_000, ratio_u=1_000, lane="retry")),
        (RetryBudget(ratio=0.5, min_per_s=1), Bucket(key="k", rate_u=1_000_000, burst_u=50_000_000, ratio_u=500_000, lane="retry")),
    ],
)
def test_budgets(budget: RetryBudget, bucket: Bucket) -> None:
    """A budget is a bucket of the retry lane: a flow, or what fresh starts bring in over a floor."""
    assert budget.bucket("k") == bucket
    own = budget.bucket("k", part=DOWNSTREAM, value="v")
    assert (own.part, own.value) == (DOWNSTREAM, "v")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "a Rate needs exactly one of per_s, per_minute and per_hour, such as Rate(per_minute=100)"),
        ({"per_s": 1, "per_hour": 1}, "a Rate needs exactly one of per_s, per_minute and per_hour, such as Rate(per_minute=100)"),
        ({"per_s": 0}, "per_s must be a number above 0, at most 1e+06, not 0"),
        ({"per_minute": -1}, "per_minute must be a number above 0, at most 1e+06, not -1"),
        ({"per_hour": math.nan}, "per_hour must be a number above 0, at most 1e+06, not nan"),
        ({"per_s": True}, "per_s must be a number above 0, at most 1e+06, not True"),
        ({"per_s": "1"}, "per_s must be a number above 0, at most 1e+06, not '1'"),
        ({"per_s": 1_000_001}, "per_s must be a number above 0, at most 1e+06, not 1000001"),
        ({"per_s": 1, "burst": 0.5}, "burst must be a number from 1 to 1e+06, not 0.5"),
    ],
)
def test_rates_that_make_no_sense(fields: dict[str, Any], message: str) -> None:
    """Refused when made, with what would do."""
    with pytest.raises(BadSetting) as refusal:
        Rate(**fields)
    assert str(refusal.value) == message


WHICH = "a RetryBudget needs exactly one of per_s, per_minute and ratio, such as RetryBudget(ratio=0.2, min_per_s=10)"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, WHICH),
        ({"per_s": 1, "ratio": 0.2}, WHICH),
        ({"per_s": 0}, "per_s must be a number above 0, at most 1e+06, not 0"),
        ({"ratio": 101}, "ratio must be a number above 0, at most 100, not 101"),
        ({"ratio": 0.2, "min_per_s": -1}, "min_per_s must be a number from 0 to 1e+06, not -1"),
        ({"per_s": 1, "min_per_s": 1}, "min_per_s belongs to a budget by ratio; a rate is its own minimum"),
        ({"per_s": 1, "burst": 0}, "burst must be a number from 1 to 1e+06, not 0"),
        ({"per_s": 1, "each_tenant": 1}, "each_tenant must be True or False, not 1"),
        ({"per_s": 1, "over": "drop"}, "over must be one of wait, backoff, weighted, fail, not 'drop'"),
        ({"per_s": 1, "stretch": 0.5}, "stretch must be a number from 1 to 1000, not 0.5"),
    ],
)
def test_budgets_that_make_no_sense(fields: dict[str, Any], message: str) -> None:
    """Refused when made, with what would do."""
    with pytest.raises(BadSetting) as refusal:
        RetryBudget(**fields)
    assert str(refusal.value) == message


def test_bounds_themselves_are_allowed() -> None:
    """The smallest and the largest of each."""
    assert Rate(per_s=1_000_000, burst=1).burst == 1
    assert RetryBudget(ratio=100, min_per_s=1_000_000, burst=1_000_000, stretch=1_000).stretch == 1_000
    assert RetryBudget(per_s=1, stretch=1).stretch == 1
    assert (RetryBudget(per_s=1).over, RetryBudget(per_s=1).stretch) == ("wait", 2.0)
