"""How a spent retry budget changes what a queue asks for, and what it must not change."""

from __future__ import annotations

from random import Random

import pytest

from mulligan.core.contract import Claimed
from mulligan.core.errors import BadSetting
from mulligan.core.job import Lane
from mulligan.core.limits import TOKEN
from mulligan.policy.budget import RetryBudget
from mulligan.policy.downstream import Downstream
from mulligan.policy.lanes import Fifo, FreshFirst, RetryFirst, Separate, Strategy
from mulligan.policy.planner import LanePlanner
from mulligan.policy.queues import Queue
from mulligan.request import TaskSettings
from tests.policy.samples import make_job

BUDGET = RetryBudget(per_minute=100, over="weighted")


def learned(planner: LanePlanner, level_u: int) -> None:
    """A claim has met this level of the queue's budget."""
    planner.learn([], Claimed(jobs=[], now_us=0, next_due_us=None, levels={"budget:queue:q": level_u}))


def order(planner: LanePlanner, retries: int, fresh: int) -> list[Lane]:
    """In which order a claim of so many is started."""
    planner.asks(retries + fresh)
    jobs = [make_job(queue="q", lane="retry") for _ in range(retries)] + [make_job(queue="q", lane="fresh") for _ in range(fresh)]
    return [job.lane for job in planner.interleave(jobs)]


@pytest.mark.parametrize("claim", [RetryFirst(), Separate(50)])
def test_retries_come_first_until_the_budget_is_spent(claim: Strategy) -> None:
    """A budget that would fall back to shares changes nothing while there are tokens: neither the asks nor the order of starts."""
    planner = LanePlanner([Queue("q", claim=claim, budget=BUDGET)], Random(1))
    assert order(planner, 5, 20) == ["retry"] * 5 + ["fresh"] * 20
    learned(planner, TOKEN - 1)
    mixed = order(planner, 5, 20)
    assert [lane for lane in mixed[:10] if lane == "retry"] == ["retry"] * 2
    learned(planner, TOKEN)
    assert order(planner, 5, 20) == ["retry"] * 5 + ["fresh"] * 20


@pytest.mark.parametrize("claim", [FreshFirst(), Fifo()])
def test_a_queue_that_does_not_serve_retries_first_has_nothing_to_fall_back_from(claim: Strategy) -> None:
    """A spent budget must not give retries more than they had."""
    planner = LanePlanner([Queue("q", claim=claim, budget=BUDGET)], Random(1))
    before = [(ask.lane, ask.guaranteed) for ask in planner.asks(1)]
    learned(planner, 0)
    for _ in range(20):
        asks = planner.asks(10)
        assert sum(ask.guaranteed for ask in asks if ask.lane == "retry") == 0
    assert [lane for lane, _ in before] == [ask.lane for ask in asks]


def test_only_the_budget_of_a_whole_queue_can_fall_back_to_shares() -> None:
    """A setting that would do nothing is refused where it is made."""
    assert Queue("q", budget=BUDGET).budget == BUDGET
    with pytest.raises(BadSetting, match='^queue q: over="weighted" belongs to a budget of the whole queue'):
        Queue("q", budget=RetryBudget(per_minute=100, over="weighted", each_tenant=True))
    with pytest.raises(BadSetting, match='^downstream d: over="weighted" belongs'):
        Downstream("d", budget=BUDGET)
    with pytest.raises(BadSetting, match='^over="weighted" belongs'):
        TaskSettings(budget=BUDGET).checked(None)
