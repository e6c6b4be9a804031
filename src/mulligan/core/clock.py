"""Time and chance: the only module that reads the wall clock or makes a random generator.

Times are integer microseconds since 1970, UTC, everywhere inside; aware datetimes at the public edge.
"""

from __future__ import annotations

import os
import random
import time
from datetime import datetime, timedelta, timezone
from typing import Protocol

from mulligan.core.errors import BadSetting, shown

SECOND_US = 1_000_000
TIME_MIN_US = 0
TIME_MAX_US = 7_258_118_400 * SECOND_US  # 2200-01-01
# No delay, lease, time-out or age is longer than this, so that a sum with a valid time never overflows a store's integer.
SPAN_MAX_S = 230 * 365 * 86_400
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)


class Clock(Protocol):
    """Something that tells the time in microseconds since 1970, UTC."""

    def now_us(self) -> int: ...


class SystemClock:
    """The host's clock."""

    def now_us(self) -> int:
        return time.time_ns() // 1_000


class ManualClock:
    """A clock that only moves when told to; for tests and models."""

    def __init__(self, start_us: int = 1_700_000_000 * SECOND_US) -> None:
        self._now_us = start_us

    def now_us(self) -> int:
        return self._now_us

    def advance(self, seconds: float) -> None:
        self._now_us += round(seconds * SECOND_US)


def system_rng() -> random.Random:
    """A generator seeded by the operating system; pass your own where a run must repeat."""
    return random.Random(int.from_bytes(os.urandom(16), "big"))


def seconds_to_us(seconds: float, name: str) -> int:
    """Turns a span in seconds, as users write it, into microseconds; refuses what is not a finite, bounded, non-negative number."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise BadSetting(f"{name} must be a number of seconds, not {shown(seconds)}")
    if not 0 <= seconds <= SPAN_MAX_S:  # also false for NaN
        raise BadSetting(f"{name} must be between 0 and {SPAN_MAX_S} seconds, not {shown(seconds)}")
    return round(seconds * SECOND_US)


def datetime_to_us(moment: datetime, name: str) -> int:
    """Turns an aware datetime into microseconds; refuses naive ones and times outside 1970-2200."""
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise BadSetting(f"{name} must be an aware datetime, for example datetime.now(timezone.utc), not {shown(moment)}")
    us = (moment - _EPOCH) // _MICROSECOND
    if not TIME_MIN_US <= us < TIME_MAX_US:
        raise BadSetting(f"{name} must lie between 1970 and 2200, not {moment.isoformat()}")
    return us


def us_to_datetime(us: int) -> datetime:
    """The aware datetime of a stored time."""
    return _EPOCH + timedelta(microseconds=us)
