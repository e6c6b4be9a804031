from __future__ import annotations

from benchmarks.peers.figures import Summary, summary
from benchmarks.peers.table import figures_table, ratio_table, with_spread

FOUND = {
    "mulligan-redis": {"drain_per_s": summary([30_000.0, 33_000.0, 36_000.0]), "pickup_p50_ms": summary([1.0])},
    "bullmq": {"drain_per_s": summary([11_000.0])},
}


def test_a_line_for_each_peer_with_medians_and_spread() -> None:
    """What was not measured is a dash, what nobody measured is no column."""
    head, ours, theirs = figures_table(FOUND, ["mulligan-redis", "bullmq"]).splitlines()
    assert head.split() == ["drain/s", "p50", "ms"]
    assert ours.split() == ["mulligan-redis", "33,000", "±9%", "1"]
    assert theirs.split() == ["bullmq", "11,000", "-"]


def test_ratios_are_made_of_medians() -> None:
    """33,000 beside 11,000 is three times as much; a figure only one side has is a dash."""
    _, line = ratio_table(FOUND, "mulligan-redis", ["mulligan-redis", "bullmq"]).splitlines()
    assert line.split() == ["bullmq", "3.00x", "-"]


def test_without_mulligan_there_is_nothing_to_compare() -> None:
    """A run of one peer alone has no ratios."""
    assert ratio_table(FOUND, "mulligan-redis", ["bullmq"]) == ""
    assert ratio_table(FOUND, "mulligan-redis", ["mulligan-redis"]) == ""


def test_one_round_has_no_spread() -> None:
    """Nothing is said where nothing is known."""
    assert with_spread(Summary(5.0, 5.0, 5.0)) == "5"
    assert with_spread(Summary(0.5, 0.4, 0.6)) == "0.50 ±20%"
