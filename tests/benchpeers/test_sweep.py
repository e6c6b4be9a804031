from __future__ import annotations

import re
import sys

import pytest
from benchmarks.peers import sweep
from benchmarks.peers.environments import Environment
from benchmarks.peers.places import Places
from benchmarks.peers.roster import PEERS, Peer, Tuned
from benchmarks.peers.sweep import better, candidates, said, swept, table

from tests.benchpeers.test_measures import SMALL, WORK

NUMBERS = (Tuned("threads", 8, (2, 4)), Tuned("batch", 100, (50,)))


def test_one_number_is_changed_at_a_time() -> None:
    """First the peer as it is measured."""
    peer = PEERS["bullmq"]._replace(tuned=NUMBERS)
    assert [said(one) for one in candidates(peer)] == [
        "threads 8, batch 100",
        "threads 2, batch 100",
        "threads 4, batch 100",
        "threads 8, batch 50",
    ]


def test_what_is_better_in_every_round_is_told() -> None:
    """The noise of a round makes no better settings; and less may be better."""
    values = {"used": [100.0, 120.0], "more": [121.0, 130.0], "as likely": [119.0, 150.0], "less": [50.0, 99.0]}
    assert better(values, "used", "drain_per_s") == ["more"]
    assert better(values, "used", "pickup_p50_ms") == ["less"]
    assert better({"more": [1.0]}, "used", "drain_per_s") == []
    assert "used (in use)" in table(values, "used", "drain_per_s")
    assert re.search(r"more .*1\.14x", table(values, "used", "drain_per_s"))


def test_every_number_is_in_the_words_of_the_settings() -> None:
    """The page of the benchmarks tells them."""
    for peer in PEERS.values():
        for one in peer.tuned:
            words = {1: "one"}.get(one.used, f"{one.used:,}")
            assert words in peer.settings, peer.name
            assert one.used not in one.others


def test_the_number_reaches_the_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    """One with which the peer does not work is told as not measured, and the others have their figures."""
    peer = Peer("small", "sqlite", SMALL.name, None, "", "", has_bulk=False, tuned=(Tuned("batch", 64, (0, 32)),))
    command = [sys.executable, str(SMALL), "--variant", "returns"]
    monkeypatch.setattr(sweep, "environment", lambda _: Environment(command, {}))
    lines: list[str] = []
    with Places() as places:
        values, is_whole = swept(peer, places, "drain", 1, WORK, lines.append)
    assert not is_whole
    assert set(values) == {"batch 64", "batch 32"}
    assert all(rate > 0 for rates in values.values() for rate in rates)
    assert len(lines) == 3
    assert lines[1].endswith("ValueError: a batch of 0")
