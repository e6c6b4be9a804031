from __future__ import annotations

import pytest
from benchmarks.peers.figures import percentile, ratio, summary
from benchmarks.peers.noise import noise


def test_the_summary_of_rounds_is_their_median_and_extremes() -> None:
    """One slow round moves the spread, not the median."""
    one = summary([100.0, 10.0, 110.0])
    assert (one.median, one.low, one.high) == (100.0, 10.0, 110.0)
    assert one.spread == pytest.approx(1.0)


@pytest.mark.parametrize(("share", "expected"), [(0.5, 50), (0.99, 99), (1.0, 100), (0.001, 1)])
def test_a_percentile_is_a_value_that_was_measured(share: float, expected: int) -> None:
    """Of 1 to 100 the 99th percentile is 99: no interpolation, no step beyond the end."""
    assert percentile(list(range(100, 0, -1)), share) == expected


def test_a_percentile_of_one_value_is_that_value() -> None:
    """A single sample is not an error."""
    assert percentile([7.0], 0.99) == 7.0


def test_more_than_one_always_means_that_mulligan_is_ahead() -> None:
    """Rates compare one way, times and memory the other; what has no direction, or is nothing, is not compared."""
    assert ratio("drain_per_s", 200, 100) == 2.0
    assert ratio("pickup_p50_ms", 2, 5) == 2.5
    assert ratio("lost", 1, 1) is None
    assert ratio("idle_cpu_percent", 0, 1) is None


def test_noise_tells_how_many_loops_were_slow() -> None:
    """One of four loops took twice as long as usual."""
    found = noise([10.0, 10.0, 10.0, 20.0])
    assert found["noisy_share"] == 0.25
    assert (found["median_ms"], found["slowest_ms"]) == (10.0, 20.0)
    assert noise([]) == {}
