"""The same inputs at both doors: the command line and the library. What is refused, in which words; and what is odd, but fine."""

from __future__ import annotations

import math
from datetime import datetime, timezone
from typing import Any, NamedTuple

DEEP = "[" * 65 + "]" * 65
DEEPER = "[" * 100_000 + "]" * 100_000
BIG = "x" * (1024 * 1024)


class Refused(NamedTuple):
    """One bad input: the words of the command after `enqueue`, the same call of the library, and what both answers must say."""

    name: str
    typed: list[str]
    call: dict[str, Any]  # the arguments of app.enqueue; "task" is "free" unless given
    words: str


def nested(depth: int) -> Any:
    """A list in a list in a list ..."""
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def payload(name: str, text: str, value: Any, words: str) -> Refused:
    """A bad argument, as JSON and as a value."""
    return Refused(name, ["free", text], {"args": [value]}, words)


def setting(name: str, value: Any, words: str, *, typed: str | None = None) -> Refused:
    """A bad option of a job."""
    text = str(value) if typed is None else typed
    return Refused(f"{name} {text!r:.40}", ["free", f"--{name.replace('_', '-')}={text}"], {name: value}, words)


REFUSED = [
    payload("NaN", "[NaN]", [math.nan], "is not JSON"),
    payload("infinity", "[Infinity]", [math.inf], "is not JSON"),
    payload("minus infinity in an object", '{"a": -Infinity}', {"a": -math.inf}, "is not JSON"),
    payload("a number beyond a float", "[1e999]", [math.inf], "is not JSON"),
    payload("a lone surrogate", '"\\ud800"', "\ud800", "lone surrogate"),
    payload("a lone surrogate in a key", '{"\\udfff": 1}', {"\udfff": 1}, "lone surrogate"),
    payload("depth 65", DEEP, nested(65), "deep"),
    payload("depth 100,000", DEEPER, nested(100_000), "deep"),
    payload("one MiB and more", f'"{BIG}"', BIG, "the limit is 1,048,576"),
    payload("50 MB", f'"{BIG * 48}"', BIG * 48, "the limit is 1,048,576"),
    payload("an integer of 64 bits", "[9223372036854775808]", [2**63], "beyond 64 bits"),
    payload("an integer below 64 bits", "[-9223372036854775809]", [-(2**63) - 1], "beyond 64 bits"),
    payload("an integer of 1,000 digits", "[" + "9" * 1_000 + "]", [10**1_000 - 1], "beyond 64 bits"),
    Refused("a surrogate as an argument's name", ["free", "--kwargs", '{"\\ud800": 1}'], {"kwargs": {"\ud800": 1}}, "lone surrogate"),
    Refused("a task of no name", ["a b"], {"task": "a b"}, "is not a valid name"),
    Refused("a task with a newline", ["a\nb"], {"task": "a\nb"}, "is not a valid name"),
    Refused("a task of 10 kB", ["x" * 10_000], {"task": "x" * 10_000}, "is not a valid name"),
    setting("queue", "a\nb", "is not a valid name: 1 to 128"),
    setting("queue", "\x1b[31mred", "is not a valid name"),
    setting("queue", "../up", "is not a valid name"),
    setting("queue", "", "is not a valid name"),
    setting("queue", "q" * 10_000, "is not a valid name"),
    setting("queue", "очередь", "is not a valid name"),
    setting("queue", "a b", "is not a valid name"),
    setting("queue", "$where", "is not a valid name"),
    setting("queue", "{a}", "is not a valid name"),
    setting("queue", "'; DROP TABLE jobs; --", "is not a valid name"),
    setting("queue", "\u202egnp", "is not a valid name"),
    setting("unique_key", "", "unique_key must be a text of 1 to 256"),
    setting("unique_key", "k" * 257, "1 to 256 characters"),
    setting("delay", -1.0, "delay must be between 0 and"),
    setting("delay", math.nan, "delay must be between 0 and"),
    setting("delay", math.inf, "delay must be between 0 and"),
    setting("delay", 1e300, "delay must be between 0 and"),
    setting("delay", 200 * 365 * 86_400.0, "delay must end before the year 2200"),
    setting("eta", datetime(2200, 1, 1, tzinfo=timezone.utc), "between 1970 and 2200", typed="2200-01-01T00:00:00Z"),
    setting("eta", datetime(1969, 12, 31, 23, 59, 59, tzinfo=timezone.utc), "between 1970 and 2200", typed="1969-12-31T23:59:59Z"),
    setting("eta", datetime(9999, 12, 31, tzinfo=timezone.utc), "between 1970 and 2200", typed="9999-12-31T00:00:00Z"),
    setting("priority", 7, "0"),
    setting("priority", -1, "0"),
    setting("timeout", 0.0, "greater than 0 seconds"),
    setting("timeout", -1.0, "timeout must be"),
    setting("timeout", math.nan, "timeout must be"),
    setting("max_age", -1.0, "max_age"),
    setting("max_age", math.nan, "max_age"),
    setting("max_retries", -1, "max_retries must be a whole number from 0"),
    setting("interval", 0.0, "interval must be at least"),
    setting("interval", -5.0, "interval must be between 0"),
    setting("interval", math.nan, "interval must be between 0"),
    Refused("a schedule of no name", ["free", "--interval=5", "--name=a b"], {"interval": 5, "name": "a b"}, "schedule 'a b' is not"),
    Refused("a schedule with a delay", ["free", "--interval=5", "--delay=1"], {"interval": 5, "delay": 1}, "take no delay"),
    Refused("a name without an interval", ["free", "--name=x"], {"name": "x"}, "interval"),
    Refused("21 tags", ["free", *["--tag=t"] * 21], {"tags": ["t"] * 21}, "at most 20"),
    Refused("an empty tag", ["free", "--tag="], {"tags": [""]}, "tag"),
]

# Odd, but fine: they come back from every store as they were given, whichever door they came through.
ODD_ARGUMENTS: list[Any] = [
    {"$where": "1", "$set": {"a.b": 1}, "a.b.c": [{"$gt": ""}], ".": 1, "$": 2, "": 3},
    {"__proto__": {"x": 1}, "constructor": None, "_id": "other"},
    "nul \0 inside",
    "\u202eright to left, emoji \U0001f3cc, combining e\u0301, zero\u200bwidth",
    "quote ' double \" back \\ percent % dollar $1 brace {x} colon :y newline \n tab \t",
    [2**63 - 1, -(2**63), 0, 1.5, 1e308, 5e-324, -0.0, 0.1 + 0.2],
    [True, False, None, [], {}, [[[]]]],
    "x" * 100_000,
    nested(60),
]
ODD_KEYS = ["a:b", "{x}", "a.b", "$where", "ключ", "a b", "'; DROP TABLE jobs; --", "*", "a,b", "x" * 256]
ODD_TIMES = [datetime(1970, 1, 1, 0, 0, 1, tzinfo=timezone.utc), datetime(2199, 12, 31, 23, 59, 59, 999_999, tzinfo=timezone.utc)]
