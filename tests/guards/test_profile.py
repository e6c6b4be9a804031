"""The profiler books what it sees where it belongs, and its runs come to a table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.profile.__main__ import main
from benchmarks.profile.stages import Spot, spot_of
from benchmarks.profile.table import lines, profile_of

PACKAGE = "site/mulligan"
LOOP = [("lib/asyncio/events.py", "_run"), ("lib/asyncio/base_events.py", "_run_once")]


def test_a_stack_belongs_to_its_innermost_stage() -> None:
    """A driver's calls belong to the store's call that made them, helpers to whoever called them, a waiting thread to nobody."""
    slot = (f"{PACKAGE}/worker/executor.py", "_slot")
    decided = [(f"{PACKAGE}/policy/decide.py", "success"), (f"{PACKAGE}/worker/executor.py", "_decide"), slot, *LOOP]
    assert spot_of(decided) == Spot("decide", in_driver=False)
    assert spot_of([slot, *LOOP]) == Spot("dispatch", in_driver=False)
    store = [(f"{PACKAGE}/stores/redis/server.py", "run"), (f"{PACKAGE}/stores/redis/claim.py", "claim")]
    assert spot_of([("site/redis/asyncio/connection.py", "read"), *store, *LOOP]) == Spot("claim", in_driver=True)
    assert spot_of([*store, *LOOP]) == Spot("claim", in_driver=False)
    assert spot_of([(f"{PACKAGE}/stores/sqlite/hop.py", "run"), (f"{PACKAGE}/stores/sqlite/settle.py", "settle")]) == Spot("settle", True)
    assert spot_of([("lib/asyncio/selector_events.py", "_read_ready__data_received"), *LOOP]) == Spot("answers", in_driver=True)
    assert spot_of([("lib/selectors.py", "select"), *LOOP]) == Spot("unplaced", in_driver=False)
    assert spot_of(LOOP) == Spot("event loop", in_driver=False)


def test_the_figure_comes_from_the_runs_without_a_sampler() -> None:
    """Of the sampled runs only the shares count, however much the sampler has slowed them down."""
    plain = [{"cpu_s": seconds, "wall_s": 0.2} for seconds in (0.1, 0.12, 0.5)]
    sampled = [{"cpu_s": 0.9, "looks": 10, "spots": [["claim", True, 0.2], ["claim", False, 0.1], ["decide", False, 0.3]]}]
    figures = profile_of(10_000, plain, sampled)
    assert figures["cpu_us_per_job"] == 12.0
    assert figures["stages"] == {"claim": {"own_us": 2.0, "driver_us": 4.0}, "decide": {"own_us": 6.0, "driver_us": 0.0}}
    assert any("claim" in line and "50.0%" in line for line in lines("sqlite", figures))


@pytest.mark.parametrize("options", [[], ["--task", "storm", "--observed"]])
def test_a_small_run(tmp_path: Path, options: list[str]) -> None:
    """The command measures a worker's process and writes what it found."""
    out = tmp_path / "profile.json"
    assert main(["--store", "sqlite", "--jobs", "500", "--rounds", "1", "--out", str(out), *options]) == 0
    found = json.loads(out.read_text())["stores"]["sqlite"]
    assert found["cpu_us_per_job"] > 0
    assert found["looks"] > 0
    assert found["stages"]
