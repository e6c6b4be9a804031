from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mulligan.stores.memory_index import BLOCK_MAX, SortedKeys


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from("abcdef"))), st.sampled_from([1, 2, 5]))
def test_sorted_keys_is_a_sorted_set(keys: list[tuple[int, str]], every: int) -> None:
    """Whatever is added and removed, the keys come back in order, from both ends."""
    index: SortedKeys[tuple[int, str]] = SortedKeys()
    expected: set[tuple[int, str]] = set()
    for number, key in enumerate(keys):
        if key in expected:
            index.remove(key)
            expected.remove(key)
        else:
            index.add(key)
            expected.add(key)
        if number % every == 0:
            assert list(index) == sorted(expected)
    assert len(index) == len(expected)
    assert index.first() == min(expected, default=None)
    assert index.last() == max(expected, default=None)
    assert list(index.below(None)) == sorted(expected, reverse=True)
    for bound in [*keys, (3, "c")]:
        assert list(index.below(bound)) == sorted((key for key in expected if key < bound), reverse=True)


@pytest.mark.parametrize("order", ["rising", "falling", "shuffled"])
def test_sorted_keys_over_many_blocks(order: str) -> None:
    """Beyond a block's size the order still holds, however the keys arrive and leave."""
    keys = [(number // 3, f"{number:06}") for number in range(BLOCK_MAX * 8)]
    arrival = {"rising": keys, "falling": keys[::-1], "shuffled": random.Random(1).sample(keys, len(keys))}[order]
    index: SortedKeys[tuple[int, str]] = SortedKeys()
    for key in arrival:
        index.add(key)
    assert list(index) == keys
    assert list(index.below(keys[BLOCK_MAX * 5])) == keys[: BLOCK_MAX * 5][::-1]
    gone = set(random.Random(2).sample(keys, len(keys) // 2))
    for key in gone:
        index.remove(key)
    rest = [key for key in keys if key not in gone]
    assert (list(index), len(index), index.first(), index.last()) == (rest, len(rest), rest[0], rest[-1])
    for key in rest:
        index.remove(key)
    assert (list(index), len(index), index.first(), index.last()) == ([], 0, None, None)


def test_removing_what_is_not_there_is_an_error() -> None:
    """An index that has lost its row is a bug that must show itself."""
    index: SortedKeys[str] = SortedKeys()
    index.add("b")
    with pytest.raises(KeyError):
        index.remove("a")
