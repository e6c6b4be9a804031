from __future__ import annotations

import sys
from pathlib import Path

import pytest
from benchmarks.peers.environments import Environment, environment
from benchmarks.peers.measures import Work, measured
from benchmarks.peers.places import Place
from benchmarks.peers.programs import PeerFailed
from benchmarks.peers.roster import PEERS, Peer

SMALL = Path(__file__).with_name("small_queue.py")
WORK = Work(jobs=200, singles=50, storm=100, pickups=5, mortals=200, idle_s=0.1, answer_s=20, drain_s=40, back_s=4)


def small_figures(measure: str, tmp_path: Path, variant: str, work: Work = WORK) -> dict[str, float]:
    """What the runner finds out about the small queue."""
    peer = Peer("small", "sqlite", SMALL.name, None, "", "", has_bulk=False)
    command = [sys.executable, str(SMALL), "--variant", variant]
    return measured(peer, Environment(command, {}), Place(f"sqlite:///{tmp_path / 'jobs.db'}", tmp_path, None), work, measure)


def test_a_queue_that_deletes_what_it_takes_loses_jobs_by_a_kill(tmp_path: Path) -> None:
    """What had been taken is neither finished nor in the store; the runner does not wait for it until the limit."""
    figures = small_figures("kill", tmp_path, "deletes", WORK._replace(back_s=30))
    assert figures["lost"] > 0
    assert (figures["twice"], figures["not_back"]) == (0, 0)
    assert "recovery_s" not in figures


def test_a_queue_that_keeps_what_a_dead_worker_took_has_jobs_that_are_not_back(tmp_path: Path) -> None:
    """They are in the store when the time is up."""
    figures = small_figures("kill", tmp_path, "keeps")
    assert figures["not_back"] > 0
    assert (figures["lost"], figures["twice"]) == (0, 0)


def test_a_queue_that_gives_jobs_back_starts_some_twice(tmp_path: Path) -> None:
    """Those of the batch that was not yet written; all others come back unharmed."""
    figures = small_figures("kill", tmp_path, "returns")
    assert 0 < figures["twice"] <= 64
    assert (figures["lost"], figures["not_back"]) == (0, 0)
    assert 0 <= figures["recovery_s"] < WORK.back_s


def test_every_job_of_a_storm_is_tried_three_times(tmp_path: Path) -> None:
    """The rate counts only because the sums were right."""
    assert small_figures("storm", tmp_path, "returns")["storm_per_s"] > 0


def test_a_worker_that_fails_is_told_in_one_line(tmp_path: Path) -> None:
    """With the error it died of."""
    with pytest.raises(PeerFailed, match=r"^ended with 1: ZeroDivisionError: it never worked$"):
        small_figures("drain", tmp_path, "crashes")


def test_a_worker_that_says_nothing_is_given_up(tmp_path: Path) -> None:
    """After the time it has for an answer."""
    with pytest.raises(PeerFailed, match=r"^no answer within 1 s"):
        small_figures("pickup", tmp_path, "silent", WORK._replace(answer_s=1))


@pytest.mark.parametrize(
    ("measure", "names"),
    [
        ("enqueue", {"enqueue_per_s"}),
        ("drain", {"drain_per_s", "rss_mb", "cpu_us_per_job"}),
        ("pickup", {"pickup_p50_ms", "pickup_p99_ms", "idle_cpu_percent"}),
    ],
)
def test_mulligan_itself_goes_through_the_same_runner(measure: str, names: set[str], tmp_path: Path) -> None:
    """Its adapter on SQLite, with the real worker in a process of its own."""
    peer = PEERS["mulligan-sqlite"]
    figures = measured(peer, environment(peer), Place(f"sqlite:///{tmp_path / 'jobs.db'}", tmp_path, None), WORK, measure)
    assert set(figures) == names
    assert all(figures[name] > 0 for name in names - {"idle_cpu_percent", "cpu_us_per_job"})  # so little CPU may not be noticed
