"""Figures: counts that add up, and what people read of them."""

from __future__ import annotations

import msgspec
import pytest

from mulligan.core.clock import SECOND_US
from mulligan.core.figures import AttemptFigures, Figures, total, view_of


def test_figures_of_several_workers_add_up() -> None:
    """Every field is a sum, attempts number by number; what is added is left as it is."""
    one = Figures(
        fresh_starts=8, retry_starts=2, fresh_wait_us=5, retry_wait_us=7, judged=1, saved_us=9, succeeded={1: 7, 2: 1}, failed={1: 2}
    )
    two = Figures(fresh_starts=1, retry_starts=1, fresh_wait_us=1, retry_wait_us=1, judged=1, saved_us=1, succeeded={3: 1}, failed={1: 1})
    both = total([one, two])
    assert both == Figures(
        fresh_starts=9, retry_starts=3, fresh_wait_us=6, retry_wait_us=8, judged=2, saved_us=10, succeeded={1: 7, 2: 1, 3: 1}, failed={1: 3}
    )
    assert one.succeeded == {1: 7, 2: 1}
    assert set(Figures.__struct_fields__) == {name for name in Figures.__struct_fields__ if getattr(both, name)}, "a field is not added"


def test_nothing_counted_has_no_averages() -> None:
    """A rate of nothing is unknown, not zero."""
    view = view_of(Figures())
    assert (view.retry_share, view.average_fresh_wait_s, view.average_retry_wait_s, view.retry_success_rate) == (None, None, None, None)
    assert (view.average_time_saved_s, view.time_saved_s, view.by_attempt) == (None, 0, {})


def test_the_view_has_averages_and_rates() -> None:
    """Waits are per start, success is of executions beyond the first, time saved is per retry of which it is known."""
    view = view_of(
        Figures(
            fresh_starts=8,
            retry_starts=2,
            fresh_wait_us=4 * SECOND_US,
            retry_wait_us=3 * SECOND_US,
            judged=4,
            saved_us=6 * SECOND_US,
            succeeded={1: 6, 2: 3, 10: 1},
            failed={1: 2, 2: 1, 4: 1},
        )
    )
    assert view.retry_share == pytest.approx(0.2)
    assert view.average_fresh_wait_s == pytest.approx(0.5)
    assert view.average_retry_wait_s == pytest.approx(1.5)
    assert view.retry_success_rate == pytest.approx(4 / 6)
    assert view.average_time_saved_s == pytest.approx(1.5)
    assert list(view.by_attempt) == ["1", "2", "4", "10+"]
    assert view.by_attempt["2"] == AttemptFigures(succeeded=3, failed=1, success_rate=0.75)
    assert view.by_attempt["4"].success_rate == 0


def test_figures_travel_as_json() -> None:
    """They are part of a worker's report, and come back as they were."""
    figures = Figures(fresh_starts=3, succeeded={1: 2}, failed={10: 1})
    assert msgspec.json.decode(msgspec.json.encode(figures), type=Figures) == figures
