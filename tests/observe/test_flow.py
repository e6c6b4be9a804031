"""Flow: what a process counts of its queues, and what priority has saved."""

from __future__ import annotations

import msgspec
import pytest

from mulligan.core.clock import SECOND_US
from mulligan.core.figures import Figures, view_of
from mulligan.core.job import Job, Lane
from mulligan.inline import inline_job
from mulligan.observe import flow as flows
from mulligan.observe.flow import QUEUES_MAX, RECENT_US, SLOT_US, Flow
from tests.builders import new_job, us

NOW_US = 1_700_000_000 * SECOND_US


def job(lane: Lane = "fresh", *, due_s: float = 0, attempts: int = 1, priority: int = 0, queue: str = "q") -> Job:
    """A claimed job that fell due so many seconds after the beginning."""
    return msgspec.structs.replace(
        inline_job(new_job(queue, priority=priority), NOW_US), lane=lane, due_us=NOW_US + us(due_s), attempts=attempts
    )


def at(seconds: float) -> int:
    """A time after the beginning."""
    return NOW_US + us(seconds)


def test_starts_and_waits_are_counted_by_lane() -> None:
    """A wait is from the due time to the start; a clock that went back makes none of less than nothing."""
    flow = Flow()
    flow.started(job(due_s=0), at(3))
    flow.started(job(due_s=9), at(4))
    flow.started(job("retry", due_s=1), at(5))
    figures = flow.totals()["q"]
    assert (figures.fresh_starts, figures.fresh_wait_us) == (2, us(3))
    assert (figures.retry_starts, figures.retry_wait_us) == (1, us(4))


def test_ends_are_counted_by_attempt_number() -> None:
    """Beyond the tenth attempt they are counted together."""
    flow = Flow()
    for attempts, ok in [(1, True), (1, False), (2, True), (10, False), (4_000, False)]:
        flow.ended(job(attempts=attempts), ok=ok)
    assert flow.totals()["q"].succeeded == {1: 1, 2: 1}
    assert flow.totals()["q"].failed == {1: 1, 10: 2}


def test_a_retry_saves_the_time_to_the_last_older_fresh_start() -> None:
    """The document's timeline: due and started at 32 s, the last of the older jobs started at 182 s, so 150 s were saved."""
    flow = Flow()
    flow.started(job(due_s=0), at(0))
    flow.started(job("retry", due_s=32), at(32))
    for start_s in (62, 92, 122, 152, 182):
        flow.started(job(due_s=0), at(start_s))
    assert flow.totals()["q"].judged == 0, "an older job may still come"
    flow.started(job(due_s=33), at(212))
    figures = flow.totals()["q"]
    assert (figures.judged, figures.saved_us) == (1, us(150))


def test_a_retry_that_overtakes_nobody_saves_nothing() -> None:
    """Older fresh jobs that started before it do not count, nor do younger ones that start after it."""
    flow = Flow()
    flow.started(job(due_s=0), at(10))
    flow.started(job("retry", due_s=5), at(20))
    flow.started(job(due_s=6), at(30))
    figures = flow.totals()["q"]
    assert (figures.judged, figures.saved_us) == (1, 0)


def test_retries_are_judged_when_nothing_is_due_any_more() -> None:
    """Then no older fresh job can start after them."""
    flow = Flow()
    flow.started(job("retry", due_s=1), at(1))
    flow.started(job(due_s=0), at(4))
    flow.ran_dry()
    flow.ran_dry()
    assert view_of(flow.totals()["q"]).average_time_saved_s == pytest.approx(3)
    assert flow.totals()["q"].judged == 1


def test_only_jobs_of_the_same_priority_are_compared() -> None:
    """An urgent fresh job that starts later has not been overtaken by a normal retry: they stand in different lines."""
    flow = Flow()
    flow.started(job("retry", due_s=5, priority=0), at(6))
    flow.started(job(due_s=0, priority=2), at(9))
    flow.ran_dry()
    assert flow.totals()["q"].saved_us == 0


def test_what_waits_to_be_judged_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound the one that fell due first is judged by what is known of it."""
    monkeypatch.setattr(flows, "UNJUDGED_MAX", 3)
    flow = Flow()
    for number in range(5):
        flow.started(job("retry", due_s=10 + number), at(20 + number))
    assert flow.totals()["q"].judged == 2


def test_the_last_ten_minutes_are_told_apart() -> None:
    """What is older leaves the recent figures and stays in the totals."""
    flow = Flow()
    flow.started(job(), at(0))
    flow.ended(job(), ok=True)
    flow.started(job("retry"), NOW_US + RECENT_US - SLOT_US)
    both = flow.recent(NOW_US + RECENT_US - SLOT_US)["q"]
    assert (both.fresh_starts, both.retry_starts, both.succeeded) == (1, 1, {1: 1})
    later = flow.recent(NOW_US + RECENT_US + SLOT_US)["q"]
    assert (later.fresh_starts, later.retry_starts, later.succeeded) == (0, 1, {})
    assert flow.recent(NOW_US + 3 * RECENT_US) == {}
    assert flow.totals()["q"].fresh_starts == 1
    assert flow.totals()["q"].retry_starts == 1


def test_a_clock_that_goes_back_loses_nothing() -> None:
    """Counts go on in the slot there is."""
    flow = Flow()
    flow.started(job(), at(7_200))
    flow.started(job(), at(0))
    assert flow.totals()["q"].fresh_starts == 2
    assert flow.recent(at(0))["q"].fresh_starts == 2


def test_names_of_queues_cannot_grow_it_for_ever() -> None:
    """Stored names are not ours: those beyond a bound are not counted."""
    flow = Flow()
    for number in range(QUEUES_MAX + 10):
        flow.started(job(queue=f"q{number}"), at(0))
        flow.ended(job(queue=f"q{number}"), ok=True)
    assert len(flow.totals()) == QUEUES_MAX
    assert flow.totals()["q0"] == Figures(fresh_starts=1, succeeded={1: 1})
