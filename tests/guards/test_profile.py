"""The profiler books what it sees where it belongs, and its runs come to a table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.profile.__main__ import PAGE, main
from benchmarks.profile.stages import Spot, spot_of
from benchmarks.profile.table import as_markdown, lines, profile_of

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


def test_two_profiles_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is published: each stage before and now, of the stores that both files know; a stage that one of them lacks is no zero."""

    def file(name: str, cost: float, stages: dict[str, float], *stores: str) -> Path:
        found = {
            "cpu_us_per_job": cost, "cpu_us_least": cost - 1, "cpu_us_most": cost + 1, "wall_us_per_job": 2 * cost,
            "stages": {stage: {"own_us": own, "driver_us": 0.5} for stage, own in stages.items()},
        }  # fmt: skip
        path = tmp_path / name
        path.write_text(json.dumps({"task": "noop", "stores": dict.fromkeys(stores, found)}))
        return path

    before = file("before.json", 20.0, {"claim": 4.0, "events": 1.0}, "sqlite", "redis")
    now = file("now.json", 10.0, {"claim": 2.0}, "sqlite")
    table = as_markdown(json.loads(now.read_text()), json.loads(before.read_text()))
    assert table.splitlines()[0] == "| stage, µs | sqlite, before | sqlite, now |"
    assert table.splitlines()[2:] == [
        "| claim | 4.5 | 2.5 |",
        "| events | 1.5 | - |",
        "| **all** | **20.0** | **10.0** |",
        "| least to most | 19.0 to 21.0 | 9.0 to 11.0 |",
        "| on the clock | 40.0 | 20.0 |",
    ]
    page = tmp_path / "page.md"
    page.write_text("<!-- profile of noop:begin -->\nold\n<!-- profile of noop:end -->\n")
    monkeypatch.setattr("benchmarks.profile.__main__.PAGE", page)
    assert main(["--publish", str(before), str(now)]) == 0
    assert table in page.read_text()


def test_the_page_has_a_place_for_each_profile() -> None:
    """Each marker stands in the documentation exactly once."""
    text = PAGE.read_text("utf-8")
    for task in ("noop", "storm"):
        assert text.count(f"<!-- profile of {task}:begin -->\n") == text.count(f"<!-- profile of {task}:end -->") == 1
