from __future__ import annotations

import math
import random
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mulligan.core.clock import (
    SECOND_US,
    SPAN_MAX_S,
    TIME_MAX_US,
    ManualClock,
    SystemClock,
    datetime_to_us,
    seconds_to_us,
    system_rng,
    us_to_datetime,
)
from mulligan.core.errors import BadSetting


@given(st.integers(0, TIME_MAX_US - 1))
def test_times_round_trip_to_the_microsecond(time_us: int) -> None:
    """Every storable time is one aware datetime and back, without rounding."""
    moment = us_to_datetime(time_us)
    assert moment.tzinfo is timezone.utc
    assert datetime_to_us(moment, "eta") == time_us


@pytest.mark.parametrize(
    "moment, expected",
    [
        (datetime(1970, 1, 1, tzinfo=timezone.utc), 0),
        (datetime(2199, 12, 31, 23, 59, 59, 999_999, tzinfo=timezone.utc), TIME_MAX_US - 1),
        (datetime(2024, 2, 29, 12, 0, 0, 123_456, tzinfo=timezone.utc), 1_709_208_000_123_456),
        (datetime(2024, 2, 29, 14, 0, 0, 123_456, tzinfo=timezone(timedelta(hours=2))), 1_709_208_000_123_456),
        (datetime(1969, 12, 31, 20, 0, tzinfo=timezone(timedelta(hours=-4))), 0),
    ],
)
def test_known_times(moment: datetime, expected: int) -> None:
    """Zones are converted, microseconds kept, both edges allowed."""
    assert datetime_to_us(moment, "eta") == expected


@pytest.mark.parametrize(
    "moment",
    [
        datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=timezone.utc),
        datetime(2200, 1, 1, tzinfo=timezone.utc),
        datetime(1, 1, 1, tzinfo=timezone.utc),
        datetime(9999, 12, 31, tzinfo=timezone.utc),
    ],
)
def test_times_outside_the_range_are_refused(moment: datetime) -> None:
    """Before 1970 and from 2200 on no store could keep the order."""
    with pytest.raises(BadSetting, match="eta must lie between 1970 and 2200"):
        datetime_to_us(moment, "eta")


@pytest.mark.parametrize("moment", [datetime(2024, 1, 1), "2024-01-01", 1_700_000_000, None, datetime(2024, 1, 1).date()])  # noqa: DTZ001
def test_naive_times_and_other_types_are_refused(moment: object) -> None:
    """A time without a zone is ambiguous; the error shows how to write it."""
    with pytest.raises(BadSetting, match="eta must be an aware datetime"):
        datetime_to_us(moment, "eta")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "seconds, expected", [(0, 0), (1, SECOND_US), (0.5, 500_000), (0.0000004, 0), (1e-6, 1), (SPAN_MAX_S, SPAN_MAX_S * SECOND_US)]
)
def test_spans_become_microseconds(seconds: float, expected: int) -> None:
    """Seconds as users write them, rounded to the microsecond."""
    assert seconds_to_us(seconds, "delay") == expected


@pytest.mark.parametrize("seconds", [-1, -1e-9, math.nan, math.inf, -math.inf, SPAN_MAX_S + 1, 10**400, True, "5", None, timedelta(1)])
def test_spans_that_could_not_work_are_refused(seconds: object) -> None:
    """Negative, endless and foreign values are refused with the name of the setting."""
    with pytest.raises(BadSetting, match="delay must be"):
        seconds_to_us(seconds, "delay")  # type: ignore[arg-type]


def test_sums_of_the_largest_values_fit_into_64_bits() -> None:
    """The last time plus the longest span stays within what every store's integer holds."""
    assert TIME_MAX_US + SPAN_MAX_S * SECOND_US < 2**63


def test_manual_clock_moves_only_when_told() -> None:
    """It starts where it is set, and moves by what it is told, also back."""
    clock = ManualClock(5)
    assert (clock.now_us(), clock.now_us()) == (5, 5)
    clock.advance(1.5)
    assert clock.now_us() == 1_500_005
    clock.advance(-1)
    assert clock.now_us() == 500_005


def test_system_clock_tells_the_hosts_time() -> None:
    """Whole microseconds since 1970."""
    before = datetime_to_us(datetime.now(timezone.utc), "now")
    now_us = SystemClock().now_us()
    after = datetime_to_us(datetime.now(timezone.utc), "now")
    assert before <= now_us <= after + 1


def test_system_rng_is_seeded_anew_and_leaves_the_global_one_alone() -> None:
    """Two generators differ, and nobody else's draws change."""
    state = random.getstate()
    assert system_rng().random() != system_rng().random()
    assert random.getstate() == state
