from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mulligan.core.clock import us_to_datetime
from mulligan.core.schedule import MISSED, ON_TIME_US, Missed, job_of_tick, plan_ticks
from tests.builders import new_job, schedule, us

EVERY = schedule("s", 300, anchor_us=us(1_000), next_tick_us=us(1_300))


@pytest.mark.parametrize("missed", MISSED)
def test_nothing_fires_before_its_time(missed: Missed) -> None:
    """A microsecond early is early; the schedule stays where it is."""
    assert plan_ticks(replace(EVERY, missed=missed), us(1_300) - 1) == ([], us(1_300))


@pytest.mark.parametrize("missed", MISSED)
def test_a_tick_fires_at_its_time(missed: Missed) -> None:
    """On time, every rule fires the one tick and moves on by one interval."""
    assert plan_ticks(replace(EVERY, missed=missed), us(1_300)) == ([us(1_300)], us(1_600))


def test_one_fires_the_newest_missed_tick() -> None:
    """Under "one" a long sleep is made up for by a single job, that of the newest tick."""
    assert plan_ticks(EVERY, us(1_300 + 3 * 300 + 299)) == ([us(2_200)], us(2_500))


def test_all_fires_every_missed_tick_in_order() -> None:
    """Under "all" none is left out."""
    late = replace(EVERY, missed="all")
    assert plan_ticks(late, us(1_300 + 2 * 300)) == ([us(1_300), us(1_600), us(1_900)], us(2_200))


def test_all_is_bounded_and_goes_on_where_it_stopped() -> None:
    """After a long sleep the ticks come in bounded portions, none twice."""
    late = replace(EVERY, missed="all")
    ticks, following = plan_ticks(late, us(1_300 + 9 * 300), limit=4)
    assert ticks == [us(1_300 + number * 300) for number in range(4)]
    assert following == us(1_300 + 4 * 300)
    ticks, _ = plan_ticks(replace(late, next_tick_us=following), us(1_300 + 9 * 300), limit=100)
    assert ticks == [us(1_300 + number * 300) for number in range(4, 10)]


def test_skip_passes_over_what_is_late() -> None:
    """Under "skip" a tick seen up to a minute late still fires, later ones do not."""
    late = replace(EVERY, missed="skip")
    assert plan_ticks(late, us(1_300) + ON_TIME_US) == ([us(1_300)], us(1_600))
    assert plan_ticks(late, us(1_300) + ON_TIME_US + 1) == ([], us(1_600))
    assert plan_ticks(late, us(1_900) + 5) == ([us(1_900)], us(2_200))


def test_skip_of_short_intervals_allows_half_of_one() -> None:
    """For a schedule of ten seconds a tick is on time for five."""
    short = schedule("s", 10, anchor_us=us(90), next_tick_us=us(100), missed="skip")
    assert plan_ticks(short, us(105)) == ([us(100)], us(110))
    assert plan_ticks(short, us(105) + 1) == ([], us(110))


@given(st.integers(1, 10**10), st.integers(0, 10**12), st.integers(0, 10**12), st.sampled_from(MISSED), st.integers(1, 20))
def test_plans_stay_on_the_grid_and_move_forward(interval_us: int, first_us: int, late_us: int, missed: Missed, limit: int) -> None:
    """Ticks lie on the schedule's grid, rise, are not in the future, and are all before where it stands afterwards."""
    one = replace(EVERY, interval_us=interval_us, next_tick_us=first_us, missed=missed)
    now_us = first_us + late_us
    ticks, following_us = plan_ticks(one, now_us, limit)
    assert ticks == sorted(set(ticks))
    assert len(ticks) <= limit
    assert all((tick_us - first_us) % interval_us == 0 and first_us <= tick_us <= now_us for tick_us in ticks)
    assert (following_us - first_us) % interval_us == 0
    assert following_us > max(ticks, default=first_us)
    assert missed == "all" or following_us > now_us >= following_us - interval_us


@given(st.lists(st.integers(0, 5_000_000), min_size=1, max_size=20), st.sampled_from(MISSED))
def test_no_tick_is_planned_twice_however_often_one_looks(steps_us: list[int], missed: Missed) -> None:
    """Following the plan from look to look, each tick comes at most once, and under "all" exactly once (S18)."""
    one = schedule("s", 1, anchor_us=0, next_tick_us=us(1), missed=missed)
    now_us, fired = 0, []
    for step_us in steps_us:
        now_us += step_us
        ticks, following_us = plan_ticks(one, now_us)
        fired += ticks
        one = replace(one, next_tick_us=following_us)
    assert fired == sorted(set(fired))
    if missed == "all":
        assert fired == list(range(us(1), now_us + 1, us(1)))


def test_the_job_of_a_tick_is_the_pattern_with_its_own_id_and_tick() -> None:
    """The pattern's delay and absolute time do not count: the tick is the time."""
    pattern = new_job("billing", task="check", priority=2, tags=("a",), delay_s=9, eta_us=5)
    made = job_of_tick(replace(EVERY, job=pattern), us(1_300), "the-id")
    assert made == replace(pattern, id="the-id", schedule="s", tick_us=us(1_300), delay_us=0, eta_us=None)


def test_next_tick_is_a_moment() -> None:
    """People read datetimes."""
    assert EVERY.next_tick == us_to_datetime(us(1_300))
