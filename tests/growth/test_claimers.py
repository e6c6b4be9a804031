"""Contests between claimers in short, and that their judgement can fail."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks.claimers.app import CELL, counted
from benchmarks.claimers.contest import ContestFailed, figures, run_claimers
from benchmarks.claimers.report import as_markdown, as_text, uneven, wrong
from benchmarks.claimers.scaleup import figures as worker_figures
from benchmarks.growth.sites import STORES

from tests.growth.command import found_by


def record(claims: list[tuple[float, float, int]], ids: str, **fields: Any) -> dict[str, Any]:
    """What one claimer wrote down."""
    return {"claims": claims, "ids": list(ids), "settles": [(claims[0][1], claims[-1][1])], "refused": 0, "errors": 0, **fields}


def run(file: Path, *options: str) -> dict[str, Any]:
    """A short run; what it found."""
    return found_by("claimers", file, "--rounds", "1", *options)


@pytest.mark.timeout(150)
@pytest.mark.parametrize("store", STORES)
def test_claimers_share_a_queue(store: str, tmp_path: Path) -> None:
    """Three processes on one queue of each store: every job goes to exactly one of them, and each settles what it got."""
    result = run(tmp_path / "found.json", "--store", store, "--part", "contests", "--claimers", "1,3", "--jobs", "600")
    [alone], [three] = result["contests"][store].values()
    for one in (alone, three):
        assert (one["twice"], one["lost"], one["refused"]) == (0, 0, 0)
    assert alone["claims"] >= 7  # six that are full and one that finds nothing
    assert alone["short_share"] == alone["empty_share"] == 0
    assert wrong(result) == []


@pytest.mark.timeout(150)
def test_workers_share_a_queue(tmp_path: Path) -> None:
    """Real workers of one and two processes work it off, with jobs that do nothing and jobs that compute."""
    result = run(tmp_path / "found.json", "--store", "sqlite", "--part", "workers", "--processes", "1,2", "--jobs", "1000")
    assert set(result["workers"]["sqlite"]) == {"nothing", "computes"}
    for task, jobs in (("nothing", 1_000), ("computes", 200)):
        for rounds in result["workers"]["sqlite"][task].values():
            assert [one["started"] for one in rounds] == [jobs]


def test_a_claim_is_short_in_vain_if_jobs_were_left() -> None:
    """Of two short and two empty claims, only those count after which somebody still found something."""
    first = record([(0.0, 1.0, 100), (1.0, 2.0, 40), (6.0, 7.0, 0)], "ab")
    second = record([(0.0, 1.0, 0), (3.0, 4.0, 60)], "cd")
    found = figures(0.0, [first, second], 4)
    assert found["claims"] == 5
    assert found["short_share"] == pytest.approx(1 / 5)  # the 40; the 60 were the last
    assert found["empty_share"] == pytest.approx(1 / 5)  # the one at the beginning


def test_a_job_of_two_claimers_is_seen() -> None:
    """One id in two records is a job claimed twice; one that is in none is lost; shares are parts of an equal share."""
    found = figures(0.0, [record([(0.0, 1.0, 3)], "abc"), record([(0.0, 2.0, 1)], "c")], 4)
    assert (found["twice"], found["lost"]) == (1, 1)
    assert (found["least_share"], found["largest_share"]) == (0.5, 1.5)
    assert found["claim_worst_ms"] == 2_000


def test_what_must_not_be_is_told() -> None:
    """A run in which a job was claimed twice ends with a line that says so."""
    good = figures(0.0, [record([(0.0, 1.0, 2)], "ab")], 2)
    result: dict[str, Any] = {"contests": {"redis": {"1": [good], "2": [good | {"twice": 1.0}]}}}
    assert wrong(result) == ["redis, 2 claimers: 1 twice"]


def test_very_different_parts_are_told() -> None:
    """A third and twice as much as the other is told, half as much again is not."""
    good = figures(0.0, [record([(0.0, 1.0, 2)], "ab")], 2)
    even, odd = good | {"least_share": 0.5, "largest_share": 1.5}, good | {"least_share": 0.33, "largest_share": 1.67}
    [line] = uneven({"contests": {"redis": {"2": [even], "4": [odd]}}})
    assert line.startswith("redis, 4 claimers: the parts go from 0.33 to 1.67")


def test_a_claimer_that_cannot_begin_is_an_error(tmp_path: Path) -> None:
    """A process that ends before it is ready ends the contest."""
    with pytest.raises(ContestFailed, match="before it was ready"):
        run_claimers("nosuch://store", [tmp_path / "0.json"])


def test_workers_are_judged_by_the_middle_of_the_run() -> None:
    """A slow start and a slow end do not count, and a process that got nothing has a share of nothing."""
    times_us = [0, *(1_000_000 + 1_000 * number for number in range(98)), 9_000_000]
    found = worker_figures(times_us, [75, 25], 2)
    assert found["jobs_per_s"] == pytest.approx(1_000)
    assert (found["least_share"], found["largest_share"]) == (0.5, 1.5)
    assert worker_figures(times_us, [100], 2)["least_share"] == 0


def test_a_batch_at_the_edge_does_not_count_twice() -> None:
    """Fifty jobs every tenth of a second are 500 in a second, however few batches there are."""
    times_us = [100_000 * batch for batch in range(4) for _ in range(50)]
    assert worker_figures(times_us, [200], 1)["jobs_per_s"] == pytest.approx(500)


def test_what_processes_counted_is_read(tmp_path: Path) -> None:
    """Each has a file of its own."""
    for number in (7, 70_000):
        (tmp_path / str(number)).write_bytes(number.to_bytes(CELL, sys.byteorder))
    assert sorted(counted(tmp_path)) == [7, 70_000]


def test_tables_show_medians_and_what_they_are_to_one() -> None:
    """Three rounds of one claimer and of two, as text and for the documentation."""
    one = figures(0.0, [record([(0.0, 1.0, 100)], "ab")], 2)
    rounds = [one | {"jobs_per_s": rate} for rate in (90.0, 100.0, 110.0)]
    twice = [one | {"jobs_per_s": 150.0, "rollbacks": 3}]
    part = {"jobs_per_s": 10.0, "least_share": 0.9, "largest_share": 1.1}
    result = {
        "jobs": 2,
        "total": 100,
        "tasks": {"nothing": "nothing"},
        "contests": {"redis": {"1": rounds, "2": twice}},
        "workers": {"redis": {"nothing": {"1": [part], "2": [part | {"jobs_per_s": 17.0}]}}},
    }
    text = as_text(result)
    assert "100 ±10%" in text
    assert "1.50x" in text
    assert "rollbacks 3" in text
    assert "1.70x" in text
    assert "| 2 | 17 | 1.70x | 0.90 | 1.10 |" in as_markdown(result)
