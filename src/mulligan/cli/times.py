"""Times for people and for programs, from the integer microseconds of the store."""

from __future__ import annotations

from mulligan.core.clock import SECOND_US, us_to_datetime
from mulligan.policy.checks import span

DAY_US = 86_400 * SECOND_US


def iso(us: int | None) -> str | None:
    """ISO 8601 in UTC to the microsecond, for programs."""
    return None if us is None else us_to_datetime(us).isoformat(timespec="microseconds").replace("+00:00", "Z")


def clock_time(us: int | None, now_us: int) -> str:
    """The time of day in UTC, with its date where that is not today's."""
    if us is None:
        return "-"
    moment = us_to_datetime(us)
    if moment.date() == us_to_datetime(now_us).date():
        return moment.strftime("%H:%M:%S")
    return moment.strftime("%Y-%m-%d %H:%M:%S")


def length(us: int) -> str:
    """A span of time, short; a negative one (two clocks) counts as none."""
    return "0 s" if us <= 0 else span(us / SECOND_US)


def seconds_text(seconds: float) -> str:
    """A span given in seconds, short."""
    return length(round(seconds * SECOND_US))


def ago(us: int | None, now_us: int) -> str:
    """How long ago a time was, or how far ahead it lies."""
    if us is None:
        return "-"
    return f"{length(now_us - us)} ago" if us <= now_us else f"in {length(us - now_us)}"


def when(us: int, now_us: int) -> str:
    """A time with its distance: 12:00:03 (in 4 s)."""
    return f"{clock_time(us, now_us)} ({ago(us, now_us)})"
