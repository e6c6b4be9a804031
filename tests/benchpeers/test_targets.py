from __future__ import annotations

import pytest
from benchmarks.peers.figures import FIGURES, Summary, summary
from benchmarks.peers.roster import PEERS, STORES
from benchmarks.peers.targets import verdicts


def found(**figures: float) -> dict[str, Summary]:
    return {name: summary([value]) for name, value in figures.items()}


def told_of(summaries: dict[str, dict[str, Summary]]) -> list[tuple[str, str, float, bool]]:
    return [(one.name, one.figure, round(one.reached, 2), one.is_fine) for one in verdicts(summaries)]


def test_the_best_of_the_peers_is_what_counts() -> None:
    """Of two Python peers the faster one decides, and the one on Node has a target of its own."""
    drains = {
        "mulligan-redis": found(drain_per_s=40_000),
        "saq": found(drain_per_s=2_000),
        "taskiq": found(drain_per_s=8_000),
        "bullmq": found(drain_per_s=20_000),
    }
    told = verdicts(drains)
    assert [(one.reached, one.is_fine) for one in told] == [(2.0, True), (5.0, False)]
    assert told[1].wanted == "at least 8x the best Python peer (taskiq)"


def test_a_bare_loop_is_no_peer() -> None:
    """It is faster than every queue, and has a target of its own where there is one."""
    drains = {"mulligan-redis": found(drain_per_s=40_000), "bare-redis": found(drain_per_s=90_000), "saq": found(drain_per_s=4_000)}
    assert told_of(drains) == [("mulligan-redis", "drain_per_s", 10.0, True)]
    drains = {"mulligan-postgres": found(drain_per_s=40_000), "bare-postgres": found(drain_per_s=80_000)}
    assert told_of(drains) == [("mulligan-postgres", "drain_per_s", 0.5, True)]


def test_mongo_is_compared_with_both_loops() -> None:
    """Twenty-five times the one without batches is enough, less than half of the one with them is not."""
    drains = {
        "mulligan-mongo": found(drain_per_s=8_000),
        "bare-mongo": found(drain_per_s=20_000),
        "single-mongo": found(drain_per_s=320),
    }
    assert [line[2:] for line in told_of(drains)] == [(25.0, True), (0.4, False)]


def test_who_does_not_wait_for_the_disk_sets_no_target_for_enqueues() -> None:
    """Huey without fsync is faster, and loses jobs in a power cut; with fsync it counts."""
    crowds = {"mulligan-sqlite": found(crowd_per_s=9_000), "huey": found(crowd_per_s=30_000)}
    assert told_of(crowds) == []
    assert told_of({**crowds, "huey-fsync": found(crowd_per_s=3_000)}) == [("mulligan-sqlite", "crowd_per_s", 3.0, True)]


@pytest.mark.parametrize("figure, times", [("enqueue_per_s", 1.0), ("crowd_per_s", 1.5)])
def test_a_call_that_blocks_is_compared_with_those_that_block(figure: str, times: float) -> None:
    """Ours that blocks beside the best peer that blocks, ours that one awaits beside the best of those; without the former all count."""
    rates = {"mulligan-redis": 9_000.0, "huey-redis": 10_000.0, "bullmq": 4_000.0}
    summaries = {name: found(**{figure: rate}) for name, rate in rates.items()}
    assert told_of(summaries) == [("mulligan-redis", figure, 0.9, False)]
    summaries["mulligan-redis-sync"] = found(**{figure: 16_000})
    assert told_of(summaries) == [("mulligan-redis", figure, 2.25, True), ("mulligan-redis-sync", figure, 1.6, True)]
    assert [one.wanted for one in verdicts(summaries)] == [
        f"at least {times:g}x the best peer as durable that does not block (bullmq)",
        f"at least {times:g}x the best peer as durable that blocks (huey-redis)",
    ]


def test_a_worker_may_be_larger_after_very_many_jobs() -> None:
    """70 MB are too much after 20,000 jobs and fine after a million."""
    assert [one.is_fine for one in verdicts({"mulligan-redis": found(rss_mb=70, drained=20_000)})] == [False]
    assert [one.is_fine for one in verdicts({"mulligan-redis": found(rss_mb=70, drained=1_000_000)})] == [True]


def test_a_ratio_tells_what_the_rounds_would_have_made_of_it() -> None:
    """At worst our slowest round beside their fastest, at best the other way round."""
    drains = {
        "mulligan-redis": {"drain_per_s": summary([30_000.0, 20_000.0, 40_000.0])},
        "bullmq": {"drain_per_s": summary([10_000.0, 8_000.0, 16_000.0])},
    }
    (verdict,) = verdicts(drains)
    assert (verdict.reached, verdict.low, verdict.high) == (3.0, 1.25, 5.0)
    assert verdict.line().split()[:7] == ["reached", "mulligan-redis", "drain/s", "3.00x", "1.25", "to", "5.00"]


# The rows of the target table: who, which figure, and beside whom or what.
ROWS = {
    ("mulligan-postgres", "drain_per_s", "graphile-worker"),
    ("mulligan-postgres", "drain_per_s", "pgqueuer"),
    ("mulligan-postgres", "drain_per_s", "bare-postgres"),
    ("mulligan-redis", "drain_per_s", "bullmq"),
    ("mulligan-redis", "drain_per_s", "saq"),
    ("mulligan-sqlite", "drain_per_s", "huey"),
    ("mulligan-mongo", "drain_per_s", "single-mongo"),
    ("mulligan-mongo", "drain_per_s", "bare-mongo"),
    *((f"mulligan-{store}", "cpu_us_per_job", "15") for store in ("postgres", "sqlite")),
    *((f"mulligan-{store}-watched", "cpu_us_per_job", "25") for store in ("postgres", "sqlite")),
    *((f"mulligan-{store}", "two_processes_x", "1.7") for store in STORES),
    *((f"mulligan-{which}", figure, peer) for which, peer in
      (("postgres", "pgqueuer"), ("redis", "bullmq"), ("redis-sync", "huey-redis"), ("sqlite-sync", "huey-fsync"))
      for figure in ("enqueue_per_s", "crowd_per_s")),
    *((f"mulligan-{store}", "bulk_per_s", peer) for store, peer in (("postgres", "pgqueuer"), ("redis", "bullmq"))),
    ("mulligan-postgres", "bulk_per_s", "80,000"),
    ("mulligan-redis", "pickup_p50_ms", "1.5"),
    ("mulligan-postgres", "pickup_p50_ms", "3"),
    ("mulligan-sqlite", "pickup_p50_ms", "3"),
    ("mulligan-mongo", "pickup_p50_ms", "8"),
    *((f"mulligan-{store}", "pickup_p99_ms", "3x its p50 ms") for store in STORES),
    *((f"mulligan-{store}", "loaded_p99_ms", "10x its p99 ms") for store in STORES),
    *((f"mulligan-{store}", "idle_cpu_percent", "1") for store in STORES),
    *((f"mulligan-{store}", "storm_per_s", peer) for store, peer in (("postgres", "pgqueuer"), ("redis", "bullmq"), ("sqlite", "huey"))),
    *((f"mulligan-{store}", "storm_per_s", "0.5x its drain/s") for store in STORES),
    *((f"mulligan-{store}", "rss_mb", "60") for store in STORES),
    *((f"mulligan-{store}", figure, "0") for store in STORES for figure in ("lost", "not_back")),
}  # fmt: skip


def test_every_row_of_the_table_is_judged() -> None:
    """Where everybody was measured, each row has its verdict, and nothing else has one."""
    speeds = {"bullmq": 3.0, "pgqueuer": 3.0, "saq": 2.0, "huey-fsync": 2.0, "huey": 4.0, "huey-redis": 1.5}
    everything = {
        name: {figure: summary([speeds.get(name, 1.0)]) for figure in FIGURES if figure != "drained"}
        for name in PEERS
        if name in speeds or PEERS[name].role != "peer" or name == "graphile-worker"
    }
    del everything["huey-fsync"]["bulk_per_s"], everything["huey"]["bulk_per_s"]
    told = {(one.name, one.figure, _last(one.wanted)) for one in verdicts(everything)}
    assert told == ROWS


def _last(wanted: str) -> str:
    """Beside whom, or the number itself."""
    named = wanted.rpartition("(")[2].removesuffix(")")
    return named if named in PEERS else wanted.split(" ", 2)[2]


def test_a_peer_that_cannot_try_again_at_once_sets_no_target_for_the_storm() -> None:
    """Its rate leaves out the time it waits; beside it nothing can be told."""
    storms = {"mulligan-postgres": found(storm_per_s=10_000), "graphile-worker": found(storm_per_s=30_000)}
    assert told_of(storms) == []
    assert [line[3] for line in told_of({**storms, "pgqueuer": found(storm_per_s=1_000)})] == [True]


def test_bounds_and_figures_of_mulligan_alone() -> None:
    """A median of pick-ups that is low enough, and a tail that is not."""
    told = told_of({"mulligan-sqlite": found(pickup_p50_ms=2.0, pickup_p99_ms=9.0)})
    assert told == [("mulligan-sqlite", "pickup_p50_ms", 2.0, True), ("mulligan-sqlite", "pickup_p99_ms", 4.5, False)]


def test_latency_under_load_is_compared_with_the_idle_one() -> None:
    """Nine times the idle tail is fine, eleven times is not."""
    assert [one.is_fine for one in verdicts({"mulligan-mongo": found(pickup_p99_ms=5.0, loaded_p99_ms=45.0)})] == [True]
    assert [one.is_fine for one in verdicts({"mulligan-mongo": found(pickup_p99_ms=5.0, loaded_p99_ms=55.0)})] == [False]


def test_nothing_is_told_of_what_was_not_measured() -> None:
    """Peers alone have no targets."""
    assert verdicts({"saq": found(drain_per_s=2_000)}) == []
