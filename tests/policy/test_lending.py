from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mulligan.core.lending import allot

ONE_QUEUE = [("q", "fresh"), ("q", "fresh"), ("q", "retry"), ("q", "retry")]
TWO_QUEUES = [("a", "fresh"), ("a", "retry"), ("b", "fresh"), ("b", "retry")]


@pytest.mark.parametrize(
    ("total", "guaranteed", "available", "takes"),
    [
        (10, [8, 2], [20, 20], [8, 2]),
        (10, [8, 2], [20, 0], [10, 0]),
        (10, [8, 2], [3, 20], [3, 7]),
        (6, [0, 2], [10, 10], [4, 2]),
        (4, [3, 3], [10, 10], [3, 1]),
        (10, [5, 5], [1, 1], [1, 1]),
        (0, [5, 5], [9, 9], [0, 0]),
        (6, [-3, 2], [10, 10], [4, 2]),  # less than nothing is nothing
    ],
)
def test_guaranteed_first_then_in_the_order_of_the_asks(total: int, guaranteed: list[int], available: list[int], takes: list[int]) -> None:
    """Each ask has its own share; what is left goes to the first that can use it."""
    assert allot(total, guaranteed, available) == takes
    assert allot(total, guaranteed, available, [("q", place) for place in range(len(takes))]) == takes


@pytest.mark.parametrize(
    ("guaranteed", "available", "groups", "takes"),
    [
        # Urgent is empty: its share stays in its lane, for both lanes.
        ([7, 1, 2, 0], [0, 50, 0, 50], ONE_QUEUE, [0, 8, 0, 2]),
        # The retry lane is empty: its share goes to the fresh lane.
        ([7, 1, 2, 0], [0, 50, 0, 0], ONE_QUEUE, [0, 10, 0, 0]),
        # A lane's share goes to the other lane of its queue before it goes to another queue.
        ([4, 1, 4, 1], [50, 0, 50, 50], TWO_QUEUES, [5, 0, 4, 1]),
        # A whole queue is empty: the other takes its share in the proportion of its own lanes.
        ([4, 1, 4, 1], [0, 0, 50, 50], TWO_QUEUES, [0, 0, 8, 2]),
        ([4, 1, 4, 1], [0, 0, 50, 1], TWO_QUEUES, [0, 0, 9, 1]),
        ([4, 1, 4, 1], [0, 0, 5, 50], TWO_QUEUES, [0, 0, 5, 5]),
        # What is lent is less than they have of their own: it is split all the same, and what does not divide goes to the first.
        ([2, 0, 4, 4], [0, 0, 50, 50], TWO_QUEUES, [0, 0, 5, 5]),
        ([3, 0, 6, 1], [0, 0, 50, 50], TWO_QUEUES, [0, 0, 9, 1]),
        ([3, 0, 1, 6], [0, 0, 50, 50], TWO_QUEUES, [0, 0, 2, 8]),
        # Lanes without a guarantee get what is left.
        ([5, 0, 5, 0], [0, 0, 1, 50], TWO_QUEUES, [0, 0, 1, 9]),
        ([10, 0, 0, 0], [0, 0, 50, 50], TWO_QUEUES, [0, 0, 10, 0]),
    ],
)
def test_shares_are_lent_inside_the_lane_and_the_queue_first(
    guaranteed: list[int], available: list[int], groups: list[tuple[str, str]], takes: list[int]
) -> None:
    """A lane's guarantee holds whatever levels its jobs have, and a queue's share is its own first."""
    assert allot(10, guaranteed, available, groups) == takes


@given(
    st.integers(0, 60), st.lists(st.tuples(st.integers(0, 20), st.integers(0, 40), st.sampled_from(TWO_QUEUES)), max_size=8), st.booleans()
)
def test_nothing_is_promised_twice_or_left_idle(total: int, rows: list[tuple[int, int, tuple[str, str]]], grouped: bool) -> None:
    """All slots are used while jobs wait, none twice, and a guarantee within the total is kept."""
    guaranteed, available = [row[0] for row in rows], [row[1] for row in rows]
    takes = allot(total, guaranteed, available, [row[2] for row in rows] if grouped else None)
    assert sum(takes) == min(total, sum(available))
    assert all(0 <= take <= waiting for take, waiting in zip(takes, available, strict=True))
    if sum(guaranteed) <= total:
        assert all(take >= min(own, waiting) for take, own, waiting in zip(takes, guaranteed, available, strict=True))
