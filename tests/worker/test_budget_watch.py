"""The budget watch: one event when a budget is spent, one when half of it is back."""

from __future__ import annotations

from mulligan.core.limits import TOKEN
from mulligan.worker import budget_watch
from mulligan.worker.budget_watch import BudgetWatch
from tests.builders import bucket

QUEUE = bucket("budget:queue:q", per_s=2, burst=10)
EACH = bucket("budget:tenant:a/b each", per_s=1, burst=4)


def told(watch: BudgetWatch, **levels: float) -> list[tuple[str, str, str]]:
    """The events of some levels, in tokens: kind, whose budget, and its name."""
    keys = {"q": "budget:queue:q", "anna": "budget:tenant:a/b each/anna/1", "rate": "rate:queue:q", "gone": "budget:queue:gone"}
    seen = watch.look({keys[name]: round(level * TOKEN) for name, level in levels.items()}, [QUEUE, EACH], 7)
    return [(event.kind, event.detail["owner"], event.detail["name"]) for event in seen]


def test_a_spent_budget_is_told_once_until_half_is_back() -> None:
    """A token that comes in and is taken at once is no recovery."""
    watch = BudgetWatch("w1")
    assert told(watch, q=3) == []
    assert told(watch, q=0.99) == [("BUDGET_SPENT", "queue", "q")]
    assert told(watch, q=0) == []
    assert told(watch, q=4.99) == []
    assert told(watch, q=5) == [("BUDGET_RECOVERED", "queue", "q")]
    assert told(watch, q=-1) == [("BUDGET_SPENT", "queue", "q")]


def test_the_event_has_the_numbers() -> None:
    """What is left, how much there may be, what flows in; and the queue, where it is a queue's."""
    [event] = BudgetWatch("w1").look({"budget:queue:q": -5}, [QUEUE], 7)
    assert (event.at_us, event.worker, event.queue) == (7, "w1", "q")
    assert event.detail == {"owner": "queue", "name": "q", "left": 0, "most": 10, "per_s": 2}


def test_tenants_have_budgets_of_their_own() -> None:
    """Names of queues and tenants may hold slashes; what is no budget, or one nobody keeps, says nothing."""
    watch = BudgetWatch("w1")
    assert told(watch, anna=0, rate=0, gone=0) == [("BUDGET_SPENT", "tenant", "a/b anna/1")]
    assert told(watch, anna=2) == [("BUDGET_RECOVERED", "tenant", "a/b anna/1")]


def test_what_it_remembers_is_bounded() -> None:
    """Tenants are many: beyond the bound nothing is told."""
    watch = BudgetWatch("w1")
    many = {f"budget:tenant:a/b each/{number}": 0 for number in range(budget_watch.SPENT_MAX + 5)}
    assert len(watch.look(many, [EACH], 7)) == budget_watch.SPENT_MAX
