from __future__ import annotations

import sys
from pathlib import Path

import pytest
from benchmarks.peers.environments import Environment, environment
from benchmarks.peers.measures import measured
from benchmarks.peers.places import Place
from benchmarks.peers.programs import PeerFailed
from benchmarks.peers.roster import PEERS, Peer, Tuned
from benchmarks.peers.work import Work

from tests.servers import fresh_url

SMALL = Path(__file__).with_name("small_queue.py")
BATCH = Tuned("batch", 64, ())  # so that a kill in the middle of 200 jobs is in the middle of a batch
WORK = Work(
    jobs=200, singles=50, crowd=300, storm=100, pickups=5, mortals=200, burns=50,
    loaded_s=0.3, idle_s=0.1, answer_s=20, drain_s=40, back_s=4,
)  # fmt: skip


def small_figures(measure: str, tmp_path: Path, variant: str, work: Work = WORK) -> dict[str, float]:
    """What the runner finds out about the small queue."""
    peer = Peer("small", "sqlite", SMALL.name, None, "", "", has_bulk=False, tuned=(BATCH,))
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


def test_a_crowd_counts_only_if_the_store_holds_all_of_it(tmp_path: Path) -> None:
    """A hundred threads; of a queue that forgets every tenth job there is no figure."""
    assert small_figures("crowd", tmp_path, "returns")["crowd_per_s"] > 0
    (tmp_path / "jobs.db").unlink()
    with pytest.raises(PeerFailed, match=r"^270 jobs are stored of 300"):
        small_figures("crowd", tmp_path, "forgets")


def test_under_load_every_job_is_picked_up(tmp_path: Path) -> None:
    """First as many as can be, then at half that rate; both with the same worker."""
    figures = small_figures("loaded", tmp_path, "returns")
    assert set(figures) == {"load_per_s", "loaded_p50_ms", "loaded_p99_ms"}
    assert 0 < figures["loaded_p50_ms"] <= figures["loaded_p99_ms"]


def test_the_bare_loop_tells_what_it_stored_and_settled(tmp_path: Path) -> None:
    """It is measured in the same steps as everybody, by its own clock, and uses no worker."""
    peer = PEERS["bare-sqlite"]
    place = Place(f"sqlite:///{tmp_path / 'jobs.db'}", tmp_path, None)
    figures = measured(peer, environment(peer), place, WORK, "drain")
    assert set(figures) == {"bulk_per_s", "drain_per_s"}
    assert all(figures.values())


def test_the_loop_without_batches_settles_every_job(tmp_path: Path) -> None:
    """It would end with an error otherwise; how long it took to fill the collection is not its figure."""
    peer = PEERS["single-mongo"]
    figures = measured(peer, environment(peer), Place(fresh_url("mongo"), tmp_path, None), WORK, "drain")
    assert set(figures) == {"drain_per_s"}


def test_a_worker_that_fails_is_told_in_one_line(tmp_path: Path) -> None:
    """With the error it died of."""
    with pytest.raises(PeerFailed, match=r"^ended with 1: ZeroDivisionError: it never worked$"):
        small_figures("drain", tmp_path, "crashes")


def test_a_worker_that_says_nothing_is_given_up(tmp_path: Path) -> None:
    """After the time it has for an answer."""
    with pytest.raises(PeerFailed, match=r"^no answer within 1 s"):
        small_figures("pickup", tmp_path, "silent", WORK._replace(answer_s=1))


@pytest.mark.parametrize(
    ("name", "measure", "names"),
    [
        ("mulligan-sqlite", "enqueue", {"enqueue_per_s"}),
        ("mulligan-sqlite", "crowd", {"crowd_per_s"}),
        ("mulligan-sqlite-sync", "enqueue", {"enqueue_per_s"}),
        ("mulligan-sqlite-sync", "crowd", {"crowd_per_s"}),
        ("mulligan-sqlite", "drain", {"drain_per_s", "drained", "rss_mb", "cpu_us_per_job"}),
        ("mulligan-sqlite-watched", "drain", {"drain_per_s", "drained", "rss_mb", "cpu_us_per_job"}),
        ("mulligan-sqlite", "pickup", {"pickup_p50_ms", "pickup_p99_ms", "idle_cpu_percent"}),
        ("mulligan-sqlite", "loaded", {"load_per_s", "loaded_p50_ms", "loaded_p99_ms"}),
        ("mulligan-sqlite", "pair", {"one_process_per_s", "two_processes_per_s", "two_processes_x"}),
    ],
)
def test_mulligan_itself_goes_through_the_same_runner(name: str, measure: str, names: set[str], tmp_path: Path) -> None:
    """Its adapter on SQLite, with the real worker in a process of its own, or below a supervisor."""
    peer = PEERS[name]
    figures = measured(peer, environment(peer), Place(f"sqlite:///{tmp_path / 'jobs.db'}", tmp_path, None), WORK, measure)
    assert set(figures) == names
    assert all(figures[name] > 0 for name in names - {"idle_cpu_percent", "cpu_us_per_job"})  # so little CPU may not be noticed
