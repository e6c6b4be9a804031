"""One free slot at a time: a lane that had nothing for long is served, as its strategy says, as soon as it has something again."""

from __future__ import annotations

from random import Random

import pytest

from mulligan.core.contract import Ask
from mulligan.core.job import Job, Lane
from mulligan.core.lending import allot
from mulligan.policy.lanes import FreshFirst, RetryFirst, Separate, Strategy
from mulligan.policy.planner import LanePlanner
from mulligan.policy.queues import Queue
from tests.policy.samples import make_job


def one_start(planner: LanePlanner, waiting: set[Lane], held_back: frozenset[str] = frozenset()) -> Lane:
    """The lane of the job that a claim of one gets, where normal jobs of these lanes wait."""
    asks: list[Ask] = planner.asks(1)
    available = [int(ask.lane in waiting and ask.priority == 0) for ask in asks]
    takes = allot(1, [ask.guaranteed for ask in asks], available, [(ask.queue, ask.lane) for ask in asks])
    jobs: list[Job] = [make_job(queue="q", lane=ask.lane) for ask, take in zip(asks, takes, strict=True) if take]
    [started] = planner.interleave(jobs, held_back)
    return started.lane


@pytest.mark.parametrize(
    ("claim", "first", "second"), [(RetryFirst(), "retry", "fresh"), (Separate(9), "retry", "fresh"), (FreshFirst(), "fresh", "retry")]
)
@pytest.mark.parametrize("seed", range(5))
def test_the_first_lane_is_served_as_soon_as_it_has_something(claim: Strategy, first: Lane, second: Lane, seed: int) -> None:
    """However long it had nothing, and however much of the other lane waits."""
    planner = LanePlanner([Queue("q", claim=claim)], Random(seed))
    for _ in range(3):
        assert [one_start(planner, {second}) for _ in range(25)] == [second] * 25
        assert [one_start(planner, {first, second}) for _ in range(5)] == [first] * 5


@pytest.mark.parametrize(("empty", "least"), [("retry", 9), ("fresh", 38)])
@pytest.mark.parametrize("seed", range(5))
def test_shares_are_kept_beside_jobs_that_are_held_back(empty: Lane, least: int, seed: int) -> None:
    """Some jobs of the queue wait for a limit all the time. A lane that had nothing besides gets its share from its next job on."""
    planner, held_back = LanePlanner([Queue("q")], Random(seed)), frozenset("q")
    other: Lane = "fresh" if empty == "retry" else "retry"
    for _ in range(3):
        assert [one_start(planner, {other}, held_back) for _ in range(25)] == [other] * 25
        assert [one_start(planner, {"fresh", "retry"}, held_back) for _ in range(50)].count(empty) >= least
