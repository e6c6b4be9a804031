from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mulligan.core.lending import allot

lines = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=6)


@given(st.integers(0, 40), lines)
def test_allot_keeps_its_promises(total: int, asks: list[tuple[int, int]]) -> None:
    """Nobody gets more than waits, the total is never exceeded, and nothing stays idle while somebody waits."""
    guaranteed, available = [own for own, _ in asks], [waiting for _, waiting in asks]
    takes = allot(total, guaranteed, available)
    assert len(takes) == len(asks)
    assert all(0 <= take <= waiting for take, waiting in zip(takes, available, strict=True))
    assert sum(takes) == min(total, sum(available))


@given(st.integers(0, 40), lines)
def test_a_guaranteed_share_is_never_lent_while_it_is_needed(total: int, asks: list[tuple[int, int]]) -> None:
    """If the shares fit into the total, each ask gets its own before anything is lent."""
    guaranteed, available = [own for own, _ in asks], [waiting for _, waiting in asks]
    if sum(guaranteed) <= total:
        takes = allot(total, guaranteed, available)
        assert all(take >= min(own, waiting) for take, own, waiting in zip(takes, guaranteed, available, strict=True))


@given(st.integers(0, 40), lines)
def test_lending_serves_the_first_ask_first(total: int, asks: list[tuple[int, int]]) -> None:
    """An ask gets more than its share only if all before it have all they can use."""
    guaranteed, available = [own for own, _ in asks], [waiting for _, waiting in asks]
    takes = allot(total, guaranteed, available)
    for position, take in enumerate(takes):
        if take > guaranteed[position]:
            assert takes[:position] == available[:position]


@pytest.mark.parametrize(
    "total, guaranteed, available, expected",
    [
        (10, [8, 2], [100, 100], [8, 2]),
        (10, [8, 2], [100, 0], [10, 0]),
        (10, [8, 2], [0, 100], [0, 10]),
        (10, [8, 2], [3, 100], [3, 7]),
        (1, [1, 0], [5, 5], [1, 0]),
        (1, [0, 1], [5, 5], [0, 1]),
        (4, [3, 3], [9, 9], [3, 1]),
        (5, [0, 0, 0], [2, 2, 2], [2, 2, 1]),
        (0, [1, 1], [5, 5], [0, 0]),
        (5, [], [], []),
    ],
)
def test_known_shares(total: int, guaranteed: list[int], available: list[int], expected: list[int]) -> None:
    """Worked examples, the defaults among them."""
    assert allot(total, guaranteed, available) == expected


def test_lists_of_different_lengths_are_a_mistake() -> None:
    """Each ask needs both numbers."""
    with pytest.raises(ValueError):
        allot(1, [1], [1, 2])
