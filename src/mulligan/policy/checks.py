"""The bounds of every number in a policy, checked when it is made, and how spans of time are written for people."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mulligan.core.errors import BadPolicy

SECONDS_MIN = 0.001  # no delay is shorter than a millisecond: a delay of zero is a hot loop
SECONDS_MAX = 366 * 86_400  # no delay is longer than a year
COUNT_MAX = 1_000_000_000
N_MAX = 2**63  # a larger n counts as this, which keeps huge integers out of the formulas and their texts
SHOWN_MAX = 80
_CO_COROUTINE = 0x80  # the flag of inspect.CO_COROUTINE, without importing inspect for it


def checked_number(value: object, field: str, low: float, high: float, unit: str) -> float:
    """The value, if it is a finite number within its bounds; else BadPolicy, naming the field and what is allowed."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:  # NaN fails every comparison
        raise BadPolicy(f"{field} must be a number{unit} from {low:g} to {high:.10g}, not {shown(value)}")
    return int(value) if isinstance(value, int) else float(value)  # a subclass, such as numpy's, becomes the plain type


def checked_seconds(value: object, field: str) -> float:
    """The value, if it is a span between a millisecond and a year."""
    return checked_number(value, field, SECONDS_MIN, SECONDS_MAX, " of seconds")


def checked_count(value: object, field: str, low: int) -> int:
    """The value, if it is a whole number within its bounds."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= COUNT_MAX:
        raise BadPolicy(f"{field} must be a whole number from {low} to {COUNT_MAX}, not {shown(value)}")
    return int(value)


def checked_n(n: object) -> int:
    """The number of a failure: 1 is the first one."""
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise BadPolicy(f"n counts failures and starts at 1, not {shown(n)}")
    return min(n, N_MAX)


def checked_function(function: object, field: str) -> Callable[[Any], Any]:
    """The function, if it can be called here and now; a coroutine function would answer with a promise."""
    if not callable(function):
        raise BadPolicy(f"{field} must be a function, not {shown(function)}")
    if getattr(getattr(function, "__code__", None), "co_flags", 0) & _CO_COROUTINE:
        raise BadPolicy(f"{field} must be a plain function, not the coroutine function {name_of(function)}")
    return function


def name_of(thing: object) -> str:
    """The short name of a class or function."""
    return str(getattr(thing, "__name__", None) or type(thing).__name__)


def shown(value: object) -> str:
    """A value as an error message shows it, at bounded length."""
    return repr(value)[:SHOWN_MAX]


def brief(value: object) -> str:
    """The same for a value that came up in a failure path: its own repr may fail too."""
    try:
        return shown(value)
    except (Exception, SystemExit) as problem:  # noqa: BLE001 - the repr of a stranger
        return f"(unreadable: {type(problem).__name__})"


def span(seconds: float) -> str:
    """A span of time, short: 250 ms, 1.3 s, 900 s, 2.5 h, 12 days."""
    if seconds < 1:
        return f"{seconds * 1_000:.3g} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    if seconds < 7_200:
        return f"{seconds:.0f} s"
    if seconds < 172_800:
        return f"{seconds / 3_600:.3g} h"
    return f"{seconds / 86_400:,.0f} days"
