"""The measure of fairness itself: it must find what is unfair."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fairness.bound import check, shortfall, worst

FAIR = ["fresh", "fresh", "retry", "fresh", "fresh"]  # over and over, for a share of one fifth


def lacking(own: list[bool], share: Fraction) -> Fraction:
    """The same measure by its definition: every window is looked at."""
    windows = [own[begin:end] for begin in range(len(own)) for end in range(begin, len(own) + 1)]
    return max([share * len(window) - sum(window) for window in windows], default=Fraction(0))


@given(st.lists(st.booleans(), max_size=40), st.sampled_from([0.2, 0.5, 0.05, 0.99]))
def test_one_pass_finds_the_worst_of_all_windows(own: list[bool], share: float) -> None:
    """The deepest fall of the running excess is what the worst window lacks, and the window that is named lacks it."""
    found = shortfall(own, share)
    exact = Fraction(str(share))
    assert found.lacks == lacking(own, exact)
    assert found.lacks == exact * (found.end - found.begin) - sum(own[found.begin : found.end])


def test_fair_starts_pass() -> None:
    """Every fifth start a retry: no window lacks more than 0.8 of one, and nothing is lost to rounding in a long run."""
    found = check(FAIR * 20_000, 0.2, 1)
    assert (found.retry.lacks, found.fresh.lacks) == (Fraction(4, 5), Fraction(4, 5))
    assert check(["fresh", "retry"] * 1_000, 0.5, 1).lacks == 0.5


@pytest.mark.parametrize(
    "lanes, share, claimers",
    [
        (["fresh"] * 80 + ["retry"] * 20, 0.2, 15),  # a batch of a hundred, grouped by lane: r(1-r) of it
        (["retry"] * 20 + ["fresh"] * 80, 0.2, 15),
        ((["fresh"] * 8 + ["retry"] * 2) * 10, 0.2, 1),  # the same in batches of ten
        (FAIR * 10 + ["fresh"] * 11 + FAIR * 10, 0.2, 1),  # one hole in the middle
        (FAIR * 10 + ["retry"] * 3 + FAIR * 10, 0.2, 1),  # retries in a row: it is fresh work that lacks its share
        (["fresh"] * 1_000, 0.05, 49),
        ((FAIR * 5 + ["fresh"]) * 100, 0.2, 16),  # a little too little, again and again
        (["retry"] * 17, 0.0001, 16),
    ],
)
def test_unfair_starts_are_found(lanes: list[str], share: float, claimers: int) -> None:
    """Grouped lanes, holes, runs and slow drifts all break the bound, and a bound that is wide enough lets each pass."""
    with pytest.raises(AssertionError, match=r"starts from number \d+ on hold \d+ of the (fresh|retry) lane"):
        check(lanes, share, claimers)
    check(lanes, share, claimers * 4)


def test_the_window_is_named() -> None:
    """A broken bound tells which starts broke it."""
    with pytest.raises(
        AssertionError, match=r"^the 11 starts from number 3 on hold 0 of the retry lane, 2\.20 less than its share of 2\.20;"
    ):
        check([*FAIR, *["fresh"] * 9, "retry", "fresh"], 0.2, 1)


def test_nothing_started_lacks_nothing() -> None:
    """An empty run keeps every bound."""
    assert worst([], 0.2).lacks == 0
