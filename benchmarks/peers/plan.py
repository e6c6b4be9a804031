"""In which order everything is measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

MEASURES = ("enqueue", "drain", "pickup", "storm", "kill")
ONCE = {"kill"}  # takes long where jobs do not come back, and is no matter of fractions


class Step(NamedTuple):
    """One measurement of one peer."""

    round: int
    measure: str
    peer: str


def steps(peers: Sequence[str], measures: Sequence[str], rounds: int) -> list[Step]:
    """Peers take turns within each measure of each round, so that a slow moment of the machine meets all; another one begins each round."""
    found = []
    for number in range(rounds):
        turn = number % len(peers) if peers else 0
        order = [*peers[turn:], *peers[:turn]]
        for measure in measures:
            if number == 0 or measure not in ONCE:
                found += [Step(number, measure, peer) for peer in order]
    return found
