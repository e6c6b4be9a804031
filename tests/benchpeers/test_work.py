from __future__ import annotations

from benchmarks.peers.run import command
from benchmarks.peers.work import Work


def test_more_jobs_to_drain_make_nothing_else_longer() -> None:
    """A million of them is a drain that takes long, and may; pick-ups and storms stay what they are."""
    usual, many = Work(), Work.of(1_000_000)
    assert many.jobs == 1_000_000
    assert many.drain_s > usual.drain_s
    assert (many.storm, many.pickups, many.crowd) == (usual.storm, usual.pickups, usual.crowd)


def test_a_fast_peer_gets_more_jobs_only_where_there_are_few() -> None:
    """A slow one gets less of everything; nobody gets three million."""
    assert Work.of(20_000).scaled(3).jobs == 60_000
    assert Work.of(1_000_000).scaled(3).jobs == 1_000_000
    assert Work.of(1_000_000).scaled(0.1).jobs == 100_000
    assert Work.of(20_000).scaled(3).storm == Work().storm


def test_a_small_run_is_small_everywhere() -> None:
    """But not so small that a crowd would have no second call."""
    assert Work.of(300).scaled(0.05).crowd == 200
    assert Work.of(300).storm < Work().storm


def test_the_command_in_a_report_tells_no_folder() -> None:
    """Only the name of the file that was written."""
    assert command(["--best", "--out", "/somewhere/of mine/found.json"]) == "python -m benchmarks.peers --best --out found.json"
