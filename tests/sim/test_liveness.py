"""What has to happen in the end is checked: engines that are too slow, too greedy or forgetful are seen by the probes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mulligan.core.job import Lane
from mulligan.policy import planner
from mulligan.sim.handlers import too_deadly
from mulligan.sim.liveness import left_over, unfair
from mulligan.sim.plan import Setup
from mulligan.sim.seeds import play_setup
from mulligan.worker import health
from mulligan.worker.executor import Executor
from mulligan.worker.fetcher import Fetcher
from mulligan.worker.keeper import Keeper
from mulligan.worker.worker import Worker
from tests.sim.desk import Desk

Patch = Callable[[pytest.MonkeyPatch], None]


async def _nothing(*_: Any) -> None:
    """What a broken engine does."""


async def _rarely(*_: Any) -> float:
    return 1_000.0


def sleep_too_long(patch: pytest.MonkeyPatch) -> None:
    """An idle worker looks every twenty seconds only."""
    patch.setattr(Fetcher, "_pause_s", lambda *_, **__: 20.0)


def never_sweep(patch: pytest.MonkeyPatch) -> None:
    """Nobody looks for ended leases."""
    patch.setattr(Worker, "_sweep", _rarely)


def wait_long_for_the_store(patch: pytest.MonkeyPatch) -> None:
    """After an outage a worker comes back late."""
    patch.setattr(health, "WAIT_MAX_S", 1_000.0)


def ignore_cancels(patch: pytest.MonkeyPatch) -> None:
    """A running handler is not told."""
    stop_run = Executor.stop_run

    def wrong(self: Executor, run: Any, reason: Any) -> None:
        if reason != "cancel":
            stop_run(self, run, reason)

    patch.setattr(Executor, "stop_run", wrong)


def starve_retries(patch: pytest.MonkeyPatch) -> None:
    """The retry lane gets nothing while fresh work waits."""
    patch.setattr(planner.Account, "due", lambda *_: 0)


def keep_running(patch: pytest.MonkeyPatch) -> None:
    """A worker that is told to stop does not stop its handlers."""
    stop_run = Executor.stop_run

    def wrong(self: Executor, run: Any, reason: Any) -> None:
        if reason != "shutdown":
            stop_run(self, run, reason)

    patch.setattr(Executor, "stop_run", wrong)


def never_renew(patch: pytest.MonkeyPatch) -> None:
    """Leases run out while their holders work."""
    patch.setattr(Keeper, "renew", _nothing)


@pytest.mark.parametrize(
    ("rules", "break_it"),
    [
        ({"L2"}, sleep_too_long),
        ({"L1", "L4"}, never_sweep),
        ({"L5"}, wait_long_for_the_store),
        ({"S20"}, ignore_cancels),
        ({"L3"}, starve_retries),
        ({"L7"}, keep_running),
        ({"L8"}, never_renew),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_broken_engine_is_seen(monkeypatch: pytest.MonkeyPatch, rules: set[str], break_it: Patch) -> None:
    """Within a few quiet worlds in which nothing else goes wrong."""
    setups = [Setup(seed=seed, jobs=12, span_s=4.0, faults=frozenset({"crash"})) for seed in range(5, 30, 5)]
    assert [found.rule for found in map(play_setup, setups) if found.rule] == []
    break_it(monkeypatch)
    found = {result.rule for result in map(play_setup, setups) if result.rule}
    assert found & rules


@pytest.mark.parametrize("seed", range(1, 6))
def test_every_probe_is_made_in_every_world(seed: int) -> None:
    """Though nothing goes wrong in it, and no job but those of the probes comes."""
    result = play_setup(Setup(seed=seed, jobs=0, span_s=1.0, faults=frozenset()))
    assert not result.rule, result.told
    assert {"L1", "L2", "L3", "L4", "L5", "L7", "L10", "S20"} <= set(result.checks)


def test_an_unfair_order_is_seen() -> None:
    """L3: a lane that gets less than its due in some stretch of starts."""
    fair: list[Lane] = ["fresh", "retry", "fresh", "fresh"] * 5
    fresh: list[Lane] = ["fresh"] * 9
    assert unfair(fair, 0.25, 1) == ""
    assert unfair([*fair, *fresh], 0.25, 1)
    assert unfair(["retry"] * 3, 0.25, 1)


def test_a_job_that_kills_too_often_is_seen() -> None:
    """L9: so many deaths, and not one more."""
    account = Desk().insert()
    account.deaths = account.numbers.max_crashes
    assert too_deadly(account) == ""
    account.deaths += 1
    assert too_deadly(account)


def test_what_is_left_over_is_seen() -> None:
    """L10: a worker without work holds nothing."""
    assert left_over(0, 0, 0, 0) == ""
    assert left_over(1, 0, 0, 0)
    assert left_over(0, 1, 0, 0)
    assert left_over(0, 0, 1, 0)
    assert left_over(0, 0, 0, 1)
