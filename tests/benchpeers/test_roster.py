from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.peers.environments import ADAPTERS, NEEDS, version
from benchmarks.peers.figures import FIGURES, GROUPS
from benchmarks.peers.measures import MEASUREMENTS
from benchmarks.peers.plan import MEASURES
from benchmarks.peers.roster import BEST, PEERS, STORES, blocking, ours

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "benchmarks.md"


def test_every_peer_has_an_adapter_and_mulligan_beside_it() -> None:
    """A peer on a store where mulligan is not measured could not be compared."""
    for peer in PEERS.values():
        assert (ADAPTERS / peer.adapter).is_file(), peer.name
        assert peer.store in STORES
        assert ours(peer.store) in PEERS
    assert set(BEST) <= set(PEERS)
    assert set(MEASURES) == set(MEASUREMENTS)


def test_a_brief_run_has_us_and_the_limit_on_every_store_and_three_peers() -> None:
    """That is what `make bench` promises to take only minutes for."""
    assert {PEERS[name].store for name in BEST if PEERS[name].role == "ours"} == set(STORES)
    assert {PEERS[name].store for name in BEST if PEERS[name].role == "limit"} == set(STORES)
    assert len([name for name in BEST if PEERS[name].role == "peer"]) == 3


def test_only_mulligan_runs_in_two_processes_and_a_loop_is_only_drained() -> None:
    """A queue takes part in everything else; the watched mulligan is there for what watching costs."""
    taken = {name: {measure for measure in MEASURES if peer.takes(measure)} for name, peer in PEERS.items()}
    assert taken["mulligan-mongo"] == set(MEASURES)
    assert taken["bullmq"] == set(MEASURES) - {"pair"}
    assert taken["mulligan-redis-sync"] == taken["mulligan-sqlite-sync"] == {"enqueue", "crowd"}
    assert taken["bare-redis"] == taken["single-mongo"] == taken["mulligan-sqlite-watched"] == {"drain"}


def test_who_blocks_is_who_has_no_coroutine() -> None:
    """A peer is marked as one that blocks its caller if and only if its adapter's call is a plain function."""
    for peer in PEERS.values():
        if not peer.is_loop and not peer.is_node and peer.role == "peer":
            assert ("    def one(" in (ADAPTERS / peer.adapter).read_text("utf-8")) is peer.blocks, peer.name
        elif peer.role != "peer":
            assert peer.blocks is (peer.name == blocking(peer.store)), peer.name
    assert {store for store in STORES if blocking(store) in PEERS} == {"redis", "sqlite"}


def test_every_figure_is_in_one_table() -> None:
    """None is left out, and none is shown twice."""
    shown = [name for names in GROUPS for name in names]
    assert sorted(shown) == sorted(FIGURES)


def test_every_peer_has_a_version() -> None:
    """From its pinned requirements, so that figures tell what they are of; a bare loop has none."""
    for peer in PEERS.values():
        assert bool(version(peer)) is not peer.is_loop, peer.name


def test_every_adapter_is_somebodys() -> None:
    """None is left over from a peer that is no longer measured."""
    assert {path.name for path in ADAPTERS.glob("peer_*")} == {peer.adapter for peer in PEERS.values()}


def test_the_page_tells_what_each_peer_does_not_promise() -> None:
    """In the words of the roster, so that the two cannot differ."""
    text = PAGE.read_text("utf-8")
    for peer in PEERS.values():
        assert f"| {peer.name} | {peer.settings} | {peer.promises} |" in text, peer.name


@pytest.mark.parametrize("name", sorted({peer.needs for peer in PEERS.values() if peer.needs and not peer.is_node}))
def test_requirements_of_python_peers_are_pinned_and_hashed(name: str) -> None:
    """Each has one version and at least one hash."""
    entries = (NEEDS / f"{name}.txt").read_text("utf-8").replace("\\\n", " ").splitlines()
    assert entries
    for entry in entries:
        pin, *hashes = entry.split(" --hash=")
        assert "==" in pin
        assert "://" not in pin
        assert hashes
        assert all(digest.strip().startswith("sha256:") for digest in hashes)


@pytest.mark.parametrize("name", sorted({peer.needs for peer in PEERS.values() if peer.needs and peer.is_node}))
def test_requirements_of_node_peers_are_locked_without_addresses(name: str) -> None:
    """Each package of the lock file has its hash; where it came from is nobody's business."""
    packages = json.loads((NEEDS / name / "package-lock.json").read_text("utf-8"))["packages"]
    installed = {path: package for path, package in packages.items() if path}
    assert f"node_modules/{name}" in installed
    assert all(package["integrity"].startswith("sha512-") for package in installed.values())
    assert not any("resolved" in package for package in installed.values())
