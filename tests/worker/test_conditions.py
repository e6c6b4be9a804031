"""The conditions: how an execution that ended, and a setting that changed, reach the claims and the policies of a worker."""

from __future__ import annotations

import random
from typing import Any

import pytest

from mulligan import Downstream, Fifo, Queue, Rate, RetryBudget, RetryPolicy
from mulligan.core.clock import ManualClock
from mulligan.core.contract import Ask, Claimed, Store
from mulligan.core.errors import Fail, Retry
from mulligan.core.groups import group_of
from mulligan.core.outcome import CancelObeyed, Outcome, Raised, Released, Snoozed, Succeeded
from mulligan.observe.bus import EventBus
from mulligan.policy.classify import classify
from mulligan.policy.queues import write_changes
from mulligan.worker.conditions import Conditions
from mulligan.worker.registry import Registry, TaskDef
from tests.builders import new_job, us
from tests.faults import FaultyStore
from tests.policy.samples import make_job
from tests.worker.members import counted, stored


class TooMany(Exception):
    """A 429 that says for how long."""

    retry_after = 40


def conditions(store: Any, clock: ManualClock, *, adapts: bool = False, **queue: Any) -> Conditions:
    """Those of a worker that serves queue q and knows one task with a rate of its own."""
    registry = Registry()
    registry.add(TaskDef(name="slow", function=print, rate=Rate(per_s=1)))
    return Conditions(
        store,
        EventBus(),
        "w1",
        registry=registry,
        queues={"q": Queue("q", **queue)},
        downstreams={"d": Downstream("d")},
        adapts=adapts,
        now_us=clock.now_us,
        rng=random.Random(1),
    )


def raised(error: Exception, **rules: Any) -> Outcome:
    """What a policy with these rules makes of an error."""
    return classify(error, RetryPolicy(**rules), 1)


@pytest.mark.parametrize(
    ("outcome", "good", "bad"),
    [
        (Succeeded(), 1, 0),
        (raised(ConnectionError("down")), 0, 1),
        (raised(TimeoutError()), 0, 1),
        (raised(Retry("not ready")), 0, 1),
        (raised(ValueError("no such invoice"), give_up_on=(ValueError,)), 0, 0),
        (raised(Fail("no such invoice")), 0, 0),
        (raised(TooMany(), snooze_on={TooMany: 5}), 0, 0),
        (Snoozed(us(5)), 0, 0),
        (CancelObeyed(), 0, 0),
        (Released("the worker shut down"), 0, 0),
    ],
    ids=lambda value: value.__class__.__name__ if not isinstance(value, Raised) else value.error.type,
)
async def test_what_an_outcome_says_of_a_downstream(store: Store, clock: ManualClock, outcome: Outcome, good: int, bad: int) -> None:
    """A success is good and a failure that is retried is bad; what is given up, put off or stopped says nothing, neither good nor bad."""
    here = conditions(store, clock)
    job = make_job(queue="q", group=group_of(None, "d", None, None), updated_at_us=clock.now_us())
    here.ended(job, Succeeded())
    here.ended(job, outcome)
    await here.beat()
    assert counted(await stored(store)) == (1 + good, bad)


@pytest.mark.parametrize(
    ("outcome", "held_s"),
    [
        (raised(TooMany()), 40),
        (raised(TooMany(), snooze_on={TooMany: 5}), 40),
        (raised(TooMany(), give_up_on=(TooMany,)), 0),
        (raised(ConnectionError("down"), snooze_on={ConnectionError: 50}), 0),
        (raised(Retry("not ready", after=50)), 0),
        (Snoozed(us(50)), 0),
    ],
    ids=["told", "told and snoozed", "given up", "snoozed by the policy", "asked by the handler", "snoozed by the handler"],
)
async def test_what_a_downstream_asks_for_is_for_everybody(store: Store, clock: ManualClock, outcome: Outcome, held_s: int) -> None:
    """A Retry-After in an error holds all jobs behind it, even if this one is snoozed; what a handler or a policy asks for does not."""
    here, there = conditions(store, clock), conditions(store, clock)
    job = make_job(queue="q", group=group_of(None, "d", None, None), updated_at_us=clock.now_us())
    here.ended(job, outcome)
    await here.beat()
    await there.beat()
    assert (there.board.refusal(job, clock.now_us()) != "") == bool(held_s)
    clock.advance(max(0, held_s - 1))
    assert (there.board.refusal(job, clock.now_us()) != "") == bool(held_s)
    clock.advance(1)
    assert there.board.refusal(job, clock.now_us()) == ""


async def test_jobs_that_depend_on_nothing_are_not_counted(store: Store, clock: ManualClock) -> None:
    """Without a downstream there is nothing to write."""
    here = conditions(store, clock, adapts=True)
    here.ended(make_job(queue="q"), raised(ConnectionError("down")))
    here.ended(make_job(queue="q", group=group_of("tenant", None, None, "key")), raised(ConnectionError("down")))
    await here.beat()
    assert await store.notes("") == []
    assert here.sensors.signals(make_job(queue="q"), clock.now_us()).failure_rate > 0


@pytest.mark.parametrize("adapts", [False, True])
async def test_the_pulse_is_taken_only_where_a_policy_looks_at_it(store: Store, clock: ManualClock, adapts: bool) -> None:
    """It costs a trip, which most have no use for."""
    await store.insert([new_job() for _ in range(7)])
    faulty = FaultyStore(store)
    here = conditions(faulty, clock, adapts=adapts)
    await here.beat()
    assert faulty.calls["pulse"] == int(adapts)
    assert here.sensors.signals(make_job(queue="q"), clock.now_us()).depth == (7 if adapts else 0)


async def test_beats_come_every_second_and_news_at_once(store: Store, clock: ManualClock) -> None:
    """A step of the loop reads the notes once in a second while nothing happens, and a quarter of one after a Retry-After was heard."""
    faulty = FaultyStore(store)
    here = conditions(faulty, clock)

    async def steps(seconds: float) -> int:
        """The beats in this time."""
        before, end_us = faulty.calls["notes"], clock.now_us() + us(seconds)
        while clock.now_us() < end_us:
            clock.advance(await here.keep_up())
        return faulty.calls["notes"] - before

    assert 9 <= await steps(10) <= 11
    job = make_job(queue="q", group=group_of(None, "d", None, None), updated_at_us=clock.now_us())
    here.ended(job, raised(TooMany()))
    assert await steps(0.25) == 1
    assert [note.key for note in await store.notes("")] == ["breaker:d"]
    assert 9 <= await steps(10) <= 11
    here.ended(job, raised(ConnectionError("down")))
    assert await steps(0.25) <= 1  # one failure of many can wait
    for _ in range(10):
        here.ended(job, raised(ConnectionError("down")))
    assert await steps(0.25) == 1
    assert (await stored(store)).state == "open"


async def test_claims_keep_the_limits_of_queue_tasks_and_downstreams(store: Store, clock: ManualClock) -> None:
    """All of them are named by every ask, those of a breaker while it is not closed."""
    here = conditions(store, clock, concurrency=3)

    def limits() -> list[str]:
        [own] = {ask.limits for ask in here.planner.asks(10)}
        return [limit.key if hasattr(limit, "key") else f"{limit.most} slots" for limit in own]

    assert limits() == ["3 slots", "1 slots", "rate:task:slow"]
    job = make_job(queue="q", group=group_of(None, "d", None, None), updated_at_us=clock.now_us())
    for _ in range(10):
        here.ended(job, raised(ConnectionError("down")))
    await here.beat()
    assert limits() == ["3 slots", "1 slots", "rate:task:slow", "breaker:d"]


async def test_changed_settings_reach_the_next_claim(store: Store, clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    """What an operator writes comes over what the code says, until it is taken back; what makes no sense is told and left alone."""
    here = conditions(store, clock, concurrency=3)
    changes: list[None] = []
    here.changed = lambda: changes.append(None)

    async def write(text: str, version: int, queue: str = "q") -> list[Ask]:
        await store.put_note(f"queue:{queue}", text, version)
        await here.beat()
        return here.planner.asks(10)

    def slots(asks: list[Ask]) -> list[int]:
        return [limit.most for limit in asks[0].limits if hasattr(limit, "most")]

    assert slots(await write(write_changes("q", {"concurrency": 5}), 0)) == [5, 1]
    assert [ask.lane for ask in await write(write_changes("q", {"claim": "fifo"}), 1)] == [None] * 3
    asks = await write('{"claim": "lifo"}', 2)
    assert ([ask.lane for ask in asks], slots(asks)) == ([None] * 3, [3, 1])
    assert "the settings it had stay in force" in caplog.text
    assert slots(await write("", 3)) == [3, 1]
    assert len(changes) == 4, "three changes, and the first beat"
    await write(write_changes("r", {"claim": Fifo()}), 0, "r")  # not served here
    assert len(changes) == 4


async def test_a_budget_that_is_changed_is_the_one_that_is_spent(store: Store, clock: ManualClock) -> None:
    """The policy hears of the budget in force, not of the one in the code."""
    here = conditions(store, clock, budget=RetryBudget(per_s=1))
    empty = Claimed(jobs=[], now_us=clock.now_us(), next_due_us=None, levels={"budget:queue:q": 0})
    here.learn(here.planner.asks(1), empty)
    job = make_job(queue="q")
    assert here.sensors.signals(job, clock.now_us()).over_budget == "wait"
    await store.put_note("queue:q", write_changes("q", {"budget": RetryBudget(per_s=1, over="fail")}), 0)
    await here.beat()
    assert here.sensors.signals(job, clock.now_us()).over_budget == "fail"
    await store.put_note("queue:q", write_changes("q", {"budget": None}), 1)
    await here.beat()
    assert here.sensors.signals(job, clock.now_us()).over_budget is None
