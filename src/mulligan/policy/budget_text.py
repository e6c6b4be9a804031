"""Rates and retry budgets as people type them: 100/m, 10/s burst 50, 20%+10/s over backoff. Read and written without a loss."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from mulligan.core.errors import BadSetting
from mulligan.policy.budget import Rate, RetryBudget
from mulligan.policy.checks import shown

TEXT_CHARS_MAX = 2_000
RATE_FORM = "a rate is written as 100/m, 10/s or 5/h, with burst N behind it where more or fewer may come at once"
BUDGET_FORM = (
    "a budget is written as 100/m, 10/s, 20% or 20%+10/s, and behind it, where wanted, burst N, over wait|backoff|weighted|fail, "
    "stretch N, each-tenant"
)
_NUMBER = r"([0-9]+(?:\.[0-9]+)?)"
_RATE = re.compile(rf"{_NUMBER}/(s|m|h)")
_SHARE = re.compile(rf"{_NUMBER}%(?:\+(.+))?")
_FIELDS = {"s": "per_s", "m": "per_minute", "h": "per_hour"}
_SECONDS = {"s": 1, "m": 60, "h": 3_600}
_FLAG = "each-tenant"
_DEFAULT = RetryBudget(ratio=1)


def read_rate(text: str) -> Rate:
    """A rate from its text; BadSetting if it is none."""
    amount, more = _taken_apart(text, RATE_FORM, ("burst",))
    number, unit = _per_time(amount, text, RATE_FORM)
    return Rate(**{**more, _FIELDS[unit]: number})


def name_of_rate(rate: Rate) -> str:
    """A rate as people write it."""
    return " ".join([_per(rate), *_burst(rate.burst)])


def read_budget(text: str) -> RetryBudget:
    """A retry budget from its text; BadSetting if it is none."""
    amount, more = _taken_apart(text, BUDGET_FORM, ("burst", "over", "stretch", _FLAG))
    share = _SHARE.fullmatch(amount)
    if share is None:
        number, unit = _per_time(amount, text, BUDGET_FORM)
        if unit == "h":
            raise BadSetting(f"a budget is per second or per minute, not per hour as in {shown(text)}")
        return RetryBudget(**{**more, _FIELDS[unit]: number})
    if share[2] is not None:
        number, unit = _per_time(share[2], text, BUDGET_FORM)
        more["min_per_s"] = number / _SECONDS[unit]
    return RetryBudget(ratio=float(Decimal(share[1]) / 100), **more)


def name_of_budget(budget: RetryBudget) -> str:
    """A retry budget as people write it."""
    if budget.ratio is None:
        words = [_per(budget)]
    else:
        percent = _digits(Decimal(repr(budget.ratio)) * 100)
        words = [f"{percent}%" + (f"+{_digits(budget.min_per_s)}/s" if budget.min_per_s else "")]
    words += _burst(budget.burst)
    if budget.over != _DEFAULT.over:
        words.append(f"over {budget.over}")
    if budget.stretch != _DEFAULT.stretch:
        words.append(f"stretch {_digits(budget.stretch)}")
    return " ".join([*words, *([_FLAG] if budget.each_tenant else [])])


def _taken_apart(text: str, form: str, known: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """The amount a text begins with, and the settings that stand behind it."""
    if not isinstance(text, str) or len(text) > TEXT_CHARS_MAX:
        raise BadSetting(f"{form}; not {shown(text)}")
    joined = re.sub(r"\s*([/+])\s*|\s+(%)", r"\1\2", text.lower())  # blanks and commas stand between the words, not inside the amount
    amount, *words = joined.replace(",", " ").split() or [""]
    given: dict[str, Any] = {}
    while words:
        word = words.pop(0)
        if word not in known or word.replace("-", "_") in given or (word != _FLAG and not words):
            raise BadSetting(f"{form}; not {shown(text)}")
        if word == _FLAG:
            given["each_tenant"] = True
        elif word == "over":
            given[word] = words.pop(0)
        else:
            given[word] = _number(words.pop(0), text, form)
    return amount, given


def _per_time(amount: str, text: str, form: str) -> tuple[float, str]:
    found = _RATE.fullmatch(amount)
    if found is None:
        raise BadSetting(f"{form}; not {shown(text)}")
    return _number(found[1], text, form), found[2]


def _number(word: str, text: str, form: str) -> float:
    if re.fullmatch(_NUMBER, word) is None:
        raise BadSetting(f"{form}; not {shown(text)}")
    return float(word) if "." in word else int(word)


def _per(rate: Rate | RetryBudget) -> str:
    """The one amount over time that is given."""
    return next(f"{_digits(value)}/{unit}" for unit, field in _FIELDS.items() if (value := getattr(rate, field, None)) is not None)


def _burst(burst: float | None) -> list[str]:
    return [] if burst is None else [f"burst {_digits(burst)}"]


def _digits(number: float | Decimal) -> str:
    """A number in plain digits, all that it has: a tenth of a millionth is 0.0000001."""
    exact = number if isinstance(number, Decimal) else Decimal(repr(number))
    return f"{exact.normalize():f}"
