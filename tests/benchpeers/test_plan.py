from __future__ import annotations

from benchmarks.peers.plan import BRIEF, BRIEF_ONCE, MEASURES, steps


def test_peers_take_turns_within_a_measure() -> None:
    """Nobody's drains are all measured in one piece: between two of the same peer all others have had theirs."""
    drains = [step.peer for step in steps(["a", "b", "c"], ["drain"], 2)]
    assert [set(drains[:3]), set(drains[3:])] == [{"a", "b", "c"}] * 2


def test_each_round_is_begun_by_another_peer() -> None:
    """Whoever is first after a measure has changed is not always the same."""
    assert [step.peer for step in steps(["a", "b", "c"], ["drain"], 4)][::3] == ["a", "b", "c", "a"]


def test_the_kill_is_measured_once() -> None:
    """It takes minutes where jobs do not come back."""
    found = steps(["a", "b"], ["drain", "kill"], 3)
    assert [step.round for step in found if step.measure == "kill"] == [0, 0]
    assert len([step for step in found if step.measure == "drain"]) == 6


def test_nobody_to_measure_is_nothing_to_do() -> None:
    """All environments may have failed."""
    assert steps([], ["drain"], 3) == []


def test_who_does_not_take_part_in_a_measure_is_left_out() -> None:
    """A bare loop can only be drained; the others take turns as if it were not there."""
    found = steps(["a", "bare", "b"], ["enqueue", "drain"], 2, takes=lambda peer, measure: peer != "bare" or measure == "drain")
    assert [step.peer for step in found if step.measure == "enqueue"] == ["a", "b", "b", "a"]
    assert [step.peer for step in found if step.measure == "drain"] == ["a", "bare", "b", "bare", "b", "a"]


def test_a_brief_run_repeats_only_the_drains() -> None:
    """Most targets are made of them; everything else is measured once, and the kill not at all."""
    found = steps(["a"], BRIEF, 3, BRIEF_ONCE)
    assert [step.round for step in found if step.measure == "drain"] == [0, 1, 2]
    assert {step.round for step in found if step.measure != "drain"} == {0}
    assert set(BRIEF) == set(MEASURES) - {"kill"}
