from __future__ import annotations

from benchmarks.peers.figures import Summary, summary
from benchmarks.peers.targets import verdicts


def found(**figures: float) -> dict[str, Summary]:
    return {name: summary([value]) for name, value in figures.items()}


def lines_of(summaries: dict[str, dict[str, Summary]]) -> list[list[str]]:
    return [line.split() for line in verdicts(summaries)]


def test_the_best_of_the_peers_is_what_counts() -> None:
    """Of two Python peers the faster one decides, and the one on Node has a target of its own."""
    drains = {
        "mulligan-redis": found(drain_per_s=40_000),
        "saq": found(drain_per_s=2_000),
        "taskiq": found(drain_per_s=8_000),
        "bullmq": found(drain_per_s=20_000),
    }
    told = lines_of(drains)
    assert [(line[0], line[3]) for line in told] == [("reached", "2.00x"), ("MISSED", "5.00x")]
    assert told[1][-1] == "(taskiq)"


def test_a_peer_that_cannot_try_again_at_once_sets_no_target_for_the_storm() -> None:
    """Its rate leaves out the time it waits; beside it nothing can be told."""
    storms = {"mulligan-postgres": found(storm_per_s=10_000), "graphile-worker": found(storm_per_s=30_000)}
    assert lines_of(storms) == []
    assert [line[0] for line in lines_of({**storms, "pgqueuer": found(storm_per_s=1_000)})] == ["reached"]


def test_bounds_and_figures_of_mulligan_alone() -> None:
    """A median of pick-ups that is low enough, and a tail that is not."""
    told = lines_of({"mulligan-sqlite": found(pickup_p50_ms=2.0, pickup_p99_ms=9.0)})
    assert [(line[0], line[2], line[4]) for line in told] == [("reached", "p50", "2.00"), ("MISSED", "p99", "4.50x")]


def test_nothing_is_told_of_what_was_not_measured() -> None:
    """Peers alone have no targets."""
    assert verdicts({"saq": found(drain_per_s=2_000)}) == []
