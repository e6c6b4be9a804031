"""The sensors: what a worker knows of the world beyond the job, and what its policies make of it."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan import Queue, RetryBudget
from mulligan.core.contract import DEPTH_MAX, Pulse, Signals
from mulligan.core.groups import group_of
from mulligan.core.job import Job
from mulligan.core.limits import TOKEN
from mulligan.policy.adaptive import Adaptive
from mulligan.policy.downstream import Downstream
from mulligan.policy.retry import RetryPolicy
from mulligan.worker import sensors as module
from mulligan.worker.registry import Registry, TaskDef
from mulligan.worker.sensors import Sensors
from tests.builders import us
from tests.policy.samples import NOW_US, make_job


async def work() -> None:
    """A task's function; nobody calls it."""


def sensors(queue: Queue | None = None, task: RetryBudget | None = None, downstream: RetryBudget | None = None) -> Sensors:
    """Those of a worker that serves queue q, knows the task `work`, and has heard of the downstream d."""
    registry = Registry()
    registry.add(TaskDef(name="work", function=work, budget=task))
    found = Sensors(registry, {"q": queue or Queue("q")}, adapts=True)
    one = Downstream("d", budget=downstream)
    bucket = one.budget_bucket()
    found.on_downstreams({} if bucket is None or downstream is None else {"d": (bucket, downstream)})
    return found


def job(**fields: Any) -> Job:
    """A job of tenant a that depends on d, of the limited task `work`."""
    return make_job(**({"queue": "q", "task": "work", "group": group_of("a", "d", "work", None)} | fields))


def over(seen: Sensors, one: Job, at_us: int = NOW_US) -> tuple[str | None, float]:
    """What a failure of the job would meet."""
    signals = seen.signals(one, at_us)
    return signals.over_budget, signals.stretch


# -- Budgets -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "key", "others"),
    [
        ({"queue": Queue("q", budget=RetryBudget(per_s=1, over="fail"))}, "budget:queue:q", job(queue="r")),
        ({"queue": Queue("q", budget=RetryBudget(per_s=1, over="fail"))}, "budget:queue:q", None),
        ({"task": RetryBudget(per_s=1, over="fail")}, "budget:task:work", job(group=group_of("a", "d", None, None))),
        ({"task": RetryBudget(per_s=1, over="fail")}, "budget:task:work", job(task="other")),
        ({"downstream": RetryBudget(per_s=1, over="fail")}, "budget:downstream:d", job(group=group_of("a", "e", "work", None))),
        ({"downstream": RetryBudget(per_s=1, over="fail")}, "budget:downstream:d", job(group=None)),
    ],
)
def test_a_spent_budget_is_told_to_whom_it_is_for(given: dict[str, Any], key: str, others: Job | None) -> None:
    """By queue, task and downstream: jobs that draw on it hear of it, and no others."""
    seen = sensors(**given)
    assert over(seen, job()) == (None, 1)  # nothing is known yet
    seen.on_levels({key: TOKEN}, NOW_US)
    assert over(seen, job()) == (None, 1)
    seen.on_levels({key: TOKEN - 1}, NOW_US)
    assert over(seen, job()) == ("fail", 2)
    if others is not None:
        assert over(seen, others) == (None, 1)


def test_each_tenant_has_its_own() -> None:
    """One that has spent its budget leaves the others theirs."""
    queue = Queue("q", budget=RetryBudget(per_s=1, each_tenant=True, over="backoff", stretch=5))
    seen = sensors(queue)
    [bucket] = [limit for limit in queue.limits if hasattr(limit, "rate_u")]
    seen.on_levels({str(bucket.key_for(job().group)): 0}, NOW_US)
    assert over(seen, job()) == ("backoff", 5)
    assert over(seen, job(group=group_of("b", "d", None, None))) == (None, 1)
    assert over(seen, job(group=None)) == (None, 1)


@pytest.mark.parametrize(
    ("modes", "strictest"),
    [
        (("wait", "backoff", "fail"), "fail"),
        (("fail", "wait", "wait"), "fail"),
        (("weighted", "backoff", "wait"), "backoff"),
        (("weighted", "wait", "wait"), "weighted"),
        (("wait", "wait", "wait"), "wait"),
    ],
)
def test_of_several_spent_budgets_the_strictest_counts(modes: Any, strictest: str) -> None:
    """Each has a rule of its own for being spent; to fail comes before waiting longer, and that before the rest."""
    queue, task, downstream = (RetryBudget(per_s=1, over=mode, stretch=number + 2) for number, mode in enumerate(modes))
    seen = sensors(Queue("q", budget=queue), task, downstream)
    seen.on_levels(dict.fromkeys(["budget:queue:q", "budget:task:work", "budget:downstream:d"], 0), NOW_US)
    assert over(seen, job())[0] == strictest


def test_of_two_that_stretch_the_longer_one_counts() -> None:
    """The strictest of one kind is the one that keeps a job waiting longest."""
    seen = sensors(Queue("q", budget=RetryBudget(per_s=1, over="backoff", stretch=3)), RetryBudget(per_s=1, over="backoff", stretch=9))
    seen.on_levels(dict.fromkeys(["budget:queue:q", "budget:task:work"], 0), NOW_US)
    assert over(seen, job()) == ("backoff", 9)


def test_a_budget_that_was_spent_long_ago_has_filled_again() -> None:
    """Levels are told by claims that meet them. Where no retry waited since, what has flowed in by now is known all the same."""
    seen = sensors(Queue("q", budget=RetryBudget(per_minute=6, over="fail")))
    seen.on_levels({"budget:queue:q": 0}, NOW_US)
    assert over(seen, job(), NOW_US + us(9.9)) == ("fail", 2)
    assert over(seen, job(), NOW_US + us(10)) == (None, 1)
    assert over(seen, job(), NOW_US - us(100)) == ("fail", 2)  # a clock set back brings nothing in


def test_the_levels_that_are_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tenants are many; what is forgotten counts as full."""
    monkeypatch.setattr(module, "LEVELS_MAX", 3)
    seen = sensors(Queue("q", budget=RetryBudget(per_s=1)))
    for number in range(20):
        seen.on_levels({f"budget:tenant:{number}": 0, "budget:queue:q": 0}, NOW_US)
        assert len(seen._levels) <= 5
        assert over(seen, job()) == ("wait", 2)


# -- Congestion ----------------------------------------------------------------------------------------------------------


def test_a_pulse_becomes_signals() -> None:
    """Depth up to its bound, and the age of the oldest by now, never below zero; nothing of a queue that has no pulse."""
    seen = sensors()
    assert seen.signals(job(), NOW_US) == Signals(now_us=NOW_US)
    seen.on_pulses([Pulse(queue="q", depth=70, oldest_us=NOW_US - us(8)), Pulse(queue="empty")])
    assert (seen.signals(job(), NOW_US + us(2)).depth, seen.signals(job(), NOW_US + us(2)).oldest_age_us) == (70, us(10))
    assert seen.signals(job(), NOW_US - us(60)).oldest_age_us == 0
    assert seen.signals(job(queue="empty"), NOW_US) == Signals(now_us=NOW_US)
    seen.on_pulses([Pulse(queue="q", depth=10 * DEPTH_MAX)])
    assert (seen.signals(job(), NOW_US).depth, seen.signals(job(), NOW_US).oldest_age_us) == (DEPTH_MAX, 0)


def test_the_failure_rate_is_that_of_about_the_last_fifty() -> None:
    """It rises to one while everything fails and falls again when nothing does; each queue has its own."""
    seen = sensors()

    def rate(ok: bool, executions: int, queue: str = "q") -> float:
        for _ in range(executions):
            seen.ended(queue, ok=ok)
        return seen.signals(job(queue=queue), NOW_US).failure_rate

    assert rate(True, 500) == 0
    assert 0.6 < rate(False, 50) < 0.7
    assert 0.98 < rate(False, 150) < 1
    assert rate(True, 300) < 0.01
    assert rate(True, 1, "r") == 0


def test_a_policy_that_adapts_makes_it_measure() -> None:
    """A job may bring a policy of its own that no task has; from the first decision by it on, the pulse is taken."""
    seen = Sensors(Registry(), {"q": Queue("q")}, adapts=False)
    seen.signals(job(), NOW_US, RetryPolicy().filled())
    assert not seen.adapts
    seen.signals(job(), NOW_US, RetryPolicy(adaptive=Adaptive(depth=10)).filled())
    assert seen.adapts


# -- The limits of tasks -------------------------------------------------------------------------------------------------


def test_limits_of_tasks_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims are many and tasks change seldom; one that is registered later is known from then on."""
    registry = Registry()
    seen = Sensors(registry, {}, adapts=False)
    assert seen.task_limits() == ()
    registry.add(TaskDef(name="work", function=work, budget=RetryBudget(per_s=3)))
    registry.add(TaskDef(name="plain", function=work))
    limits = seen.task_limits()
    assert [limit.key for limit in limits if hasattr(limit, "key")] == ["budget:task:work"]
    assert seen.task_limits() is limits
    registry.add(TaskDef(name="other", function=work, budget=RetryBudget(per_s=4)))
    assert len(seen.task_limits()) == 2
