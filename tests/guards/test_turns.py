"""States of the repository in turns: what is compared, and that a run of two of them goes through."""

from __future__ import annotations

import pytest
from benchmarks.turns.__main__ import Drain, lines, main


def test_each_state_is_compared_with_the_first() -> None:
    """Rates are medians of the rounds; more than 1 means that a state is faster than the first one."""
    before = [Drain(cpu_s=0.5, wall_s=seconds) for seconds in (2.0, 1.0, 9.0)]
    now = [Drain(cpu_s=0.25, wall_s=1.0)]
    first, second = lines("redis", "noop", 10_000, {"before": before, "now": now})
    assert "5,000/s (1,111 to 10,000)" in first
    assert "1.00x  worker 50.0 us" in first
    assert "10,000/s" in second
    assert "2.00x  worker 25.0 us" in second


def test_two_states_take_turns(capsys: pytest.CaptureFixture[str]) -> None:
    """A line for each state, of a store that was named."""
    assert main(["one=.", "two=.", "--store", "sqlite", "--task", "storm", "--jobs", "400", "--rounds", "1"]) == 0
    assert [line.split()[:3] for line in capsys.readouterr().out.splitlines()] == [["sqlite", "storm", name] for name in ("one", "two")]


@pytest.mark.parametrize("word", ["here", "=.", "x=", "x=docs"])
def test_what_is_no_checkout_is_refused(word: str) -> None:
    """It is told how to name one."""
    with pytest.raises(SystemExit, match="NAME=FOLDER"):
        main([word, "--store", "sqlite", "--jobs", "1"])
