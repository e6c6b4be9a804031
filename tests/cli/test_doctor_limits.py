"""What the doctor says of a fleet's limits: breakers, budgets, and workers that disagree."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mulligan.admin import Status
from mulligan.cli.doctor_limits import limit_findings
from mulligan.core.clock import us_to_datetime
from mulligan.core.limits import Slots
from mulligan.policy.queues import Queue
from tests.cli.test_explain import MINE, NOW_US, status
from tests.cli.test_holding import breaker, limit


def world(*workers: Any, breakers: Any = (), limits: Any = (), **queue: Any) -> Status:
    """A status with these breakers and limits."""
    return msgspec.structs.replace(status(*workers, **queue), breakers=list(breakers), limits=list(limits))


def test_a_calm_fleet_has_nothing_to_do() -> None:
    """Closed breakers, budgets with tokens, and workers that agree."""
    calm = world(MINE, breakers=[breaker()], limits=[limit(kind="budget", left=3)], retry_ready=4)
    assert [(one.check, one.level) for one in limit_findings(calm)] == [("breakers", "ok"), ("retry budgets", "ok"), ("settings", "ok")]


@pytest.mark.parametrize(
    ("seen", "check", "words"),
    [
        (world(breakers=[breaker(state="open", reason="it was down")]), "breakers", ["of bank is open: it was down", "by itself"]),
        (world(breakers=[breaker(state="open", manual=True)]), "breakers", ["mulligan breakers close bank --store x"]),
        (world(breakers=[breaker(held_until=us_to_datetime(NOW_US))]), "breakers", ["left alone until 2023-11-14 22:13:20"]),
        (
            world(limits=[limit(kind="budget")], retry_ready=1),
            "retry budgets",
            ["retry budget, queue q is spent", "--budget 200/m --store x"],
        ),
    ],
)
def test_what_holds_jobs_back_is_told(seen: Status, check: str, words: list[str]) -> None:
    """Each with its remedy."""
    [found] = [one for one in limit_findings(seen, " --store x") if one.level == "warn"]
    assert found.check == check
    text = f"{found.message} {found.advice}"
    assert [word for word in words if word not in text] == []


def test_a_spent_budget_matters_only_while_retries_wait() -> None:
    """That of another queue, or of one without due retries, is in nobody's way."""
    spent = limit(kind="budget")
    assert {one.level for one in limit_findings(world(limits=[spent], retry_ready=0))} == {"ok"}
    elsewhere = limit(kind="budget", queue="other", name="other")
    assert {one.level for one in limit_findings(world(limits=[elsewhere], retry_ready=1))} == {"ok"}


def test_workers_that_disagree_are_found() -> None:
    """Their limits differ, or their strategies."""
    one = msgspec.structs.replace(MINE, claims={"q": "fifo"}, limits={"q": Queue("q", concurrency=3).limits})
    other = msgspec.structs.replace(one, id="other", limits={"q": (Slots(most=4),)})
    [found] = [finding for finding in limit_findings(world(one, other)) if finding.level == "warn"]
    assert "workers of queue q were given different settings" in found.message
    changed = msgspec.structs.replace(one, claims={"q": "weighted(0.2)"})
    assert [finding.check for finding in limit_findings(world(one, changed)) if finding.level == "warn"] == ["settings"]
    assert {finding.level for finding in limit_findings(world(one, one))} == {"ok"}
