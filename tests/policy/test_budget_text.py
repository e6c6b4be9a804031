"""Rates and budgets as people type them: read without guessing, written without a loss."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mulligan.core.errors import BadSetting
from mulligan.policy.budget import Rate, RetryBudget
from mulligan.policy.budget_text import name_of_budget, name_of_rate, read_budget, read_rate
from mulligan.policy.queues import CHANGEABLE, Queue, checked_changes, plain_changes, read_changes, with_changes, write_changes


@pytest.mark.parametrize(
    "text, rate, written",
    [
        ("100/m", Rate(per_minute=100), "100/m"),
        ("10/s", Rate(per_s=10), "10/s"),
        ("5/h", Rate(per_hour=5), "5/h"),
        ("0.5/s", Rate(per_s=0.5), "0.5/s"),
        ("100/m burst 5", Rate(per_minute=100, burst=5), "100/m burst 5"),
        (" 100 / M,  Burst 5 ", Rate(per_minute=100, burst=5), "100/m burst 5"),
        ("1000000/s", Rate(per_s=1_000_000), "1000000/s"),
    ],
)
def test_rate_is_read_and_written(text: str, rate: Rate, written: str) -> None:
    """Capitals, blanks and commas do not matter; what is written is what was meant."""
    assert read_rate(text) == rate
    assert name_of_rate(rate) == written


@pytest.mark.parametrize(
    "text, budget, written",
    [
        ("100/m", RetryBudget(per_minute=100), "100/m"),
        ("10/s burst 3", RetryBudget(per_s=10, burst=3), "10/s burst 3"),
        ("20%", RetryBudget(ratio=0.2), "20%"),
        ("20%+10/s", RetryBudget(ratio=0.2, min_per_s=10), "20%+10/s"),
        ("20 % + 600/m", RetryBudget(ratio=0.2, min_per_s=10), "20%+10/s"),
        ("7%", RetryBudget(ratio=0.07), "7%"),
        ("150%", RetryBudget(ratio=1.5), "150%"),
        ("10/s over fail", RetryBudget(per_s=10, over="fail"), "10/s over fail"),
        (
            "20%+10/s, burst 50, over backoff, stretch 3, each-tenant",
            RetryBudget(ratio=0.2, min_per_s=10, burst=50, over="backoff", stretch=3, each_tenant=True),
            "20%+10/s burst 50 over backoff stretch 3 each-tenant",
        ),
        ("10/s over wait stretch 2", RetryBudget(per_s=10), "10/s"),
    ],
)
def test_budget_is_read_and_written(text: str, budget: RetryBudget, written: str) -> None:
    """A rate or a share of fresh work with its floor, and behind it what is not as usual."""
    assert read_budget(text) == budget
    assert name_of_budget(budget) == written


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "100", "/m", "100/", "100/d", "-1/s", "1e3/s", "nan/s", "inf/s", "٣/s", "100/m 5", "100/m burst", "100/m burst x"),
        *("100/m over fail", "20%", "1/s burst 1 burst 2", "1/s/s", "9" * 3_000 + "/s", 7, None),
    ],
)
def test_what_is_no_rate_is_refused(text: Any) -> None:
    """The message shows the form, and what was given."""
    with pytest.raises(BadSetting, match=re.escape("a rate is written as 100/m")):
        read_rate(text)


@pytest.mark.parametrize(
    "text",
    ["", "20%+", "20%+x", "+10/s", "over fail", "20%20%", "10/s+20%", "20% each-tenant each-tenant", "20% over", "20% tenant", "20"],
)
def test_what_is_no_budget_is_refused(text: str) -> None:
    """The message shows all there is to say."""
    with pytest.raises(BadSetting, match=re.escape("a budget is written as 100/m, 10/s, 20% or 20%+10/s")):
        read_budget(text)


@pytest.mark.parametrize(
    "text, words",
    [
        ("0/s", "per_s must be a number above 0"),
        ("10000000/s", "per_s must be"),
        ("1/s burst 0.5", "burst must be a number from 1"),
        ("0%", "ratio must be a number above 0"),
        ("20% over never", "over must be one of wait, backoff, weighted, fail"),
        ("20% stretch 0", "stretch must be"),
        ("5/h", "per second or per minute, not per hour"),
    ],
)
def test_bounds_are_those_of_the_values(text: str, words: str) -> None:
    """What has the form, and makes no sense, is refused as the value itself would be."""
    with pytest.raises(BadSetting, match=re.escape(words)):
        read_budget(text)


NUMBERS = st.floats(1e-9, 1_000_000) | st.integers(1, 1_000_000)
BURSTS = st.none() | st.floats(1, 1_000_000) | st.integers(1, 1_000_000)
RATES = st.tuples(st.sampled_from(["per_s", "per_minute", "per_hour"]), NUMBERS, BURSTS).map(
    lambda made: Rate(**{made[0]: made[1]}, burst=made[2])
)
AMOUNTS = st.one_of(
    st.fixed_dictionaries({"per_s": NUMBERS}),
    st.fixed_dictionaries({"per_minute": NUMBERS}),
    st.fixed_dictionaries({"ratio": st.floats(1e-9, 100), "min_per_s": st.just(0.0) | NUMBERS}),
)
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "burst": BURSTS,
        "each_tenant": st.booleans(),
        "over": st.sampled_from(["wait", "backoff", "weighted", "fail"]),
        "stretch": st.floats(1, 1_000),
    },
)
BUDGETS = st.tuples(AMOUNTS, OPTIONS).map(lambda parts: RetryBudget(**parts[0], **parts[1]))  # type: ignore[arg-type]


@given(RATES)
def test_every_rate_survives_its_text(rate: Rate) -> None:
    """Not a digit is lost."""
    assert read_rate(name_of_rate(rate)) == rate


@given(BUDGETS)
def test_every_budget_survives_its_text(budget: RetryBudget) -> None:
    """Not a digit is lost, and nothing that was chosen."""
    assert read_budget(name_of_budget(budget)) == budget


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Nothing but BadSetting ever comes out of a text that somebody typed."""
    for read in (read_rate, read_budget):
        with suppress(BadSetting):
            read(text)


def test_changes_are_the_same_as_texts_and_as_values() -> None:
    """Whatever way a setting is given, one value is kept, and shown as it is typed."""
    typed = {"claim": "weighted(0.3)", "rate": "100/m", "budget": "20%+10/s over fail", "concurrency": 5, "key_concurrency": 2}
    read = checked_changes("q", typed)
    assert (read["rate"], read["budget"]) == (Rate(per_minute=100), RetryBudget(ratio=0.2, min_per_s=10, over="fail"))
    assert checked_changes("q", read) == read
    assert plain_changes(read) == typed
    assert list(plain_changes(read)) == [name for name in CHANGEABLE if name in typed]
    assert plain_changes({"rate": None, "concurrency": None}) == {"concurrency": None, "rate": None}


def test_a_note_tells_who_wrote_it() -> None:
    """What was written is read again, with its writer; two writes of the same differ by their marks, and mean the same."""
    changes = {"claim": "separate(3)", "rate": None, "budget": RetryBudget(per_s=1)}
    one, other = (write_changes("q", changes, by="ann", mark=mark) for mark in ("1", "2"))
    assert one != other
    assert read_changes("q", one) == read_changes("q", other) == (checked_changes("q", changes), "ann")
    assert with_changes(Queue("q"), one) == with_changes(Queue("q"), other)
    assert read_changes("q", "") == read_changes("q", None) == ({}, "")


@pytest.mark.parametrize(
    "text", ["{", "[]", "7", '{"concurrency": 0}', '{"claim": "nope"}', '{"rate": {}}', '{"rate": "10/s"}', '{"key_concurrency": null}']
)
def test_a_note_of_something_else_cannot_be_read(text: str) -> None:
    """It is refused as a whole, by name."""
    with pytest.raises(BadSetting, match="queue q: its stored settings cannot be read"):
        read_changes("q", text)
