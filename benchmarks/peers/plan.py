"""In which order everything is measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

MEASURES = ("enqueue", "crowd", "drain", "pickup", "loaded", "storm", "pair", "kill")
# Takes long where jobs do not come back, and is no matter of fractions.
ONCE = frozenset({"kill"})
# What a brief run measures, and what of it once: everything but the drains, of which most targets are made.
BRIEF = ("enqueue", "crowd", "drain", "pickup", "loaded", "storm", "pair")
BRIEF_ONCE = frozenset(BRIEF) - {"drain"}


class Step(NamedTuple):
    """One measurement of one peer."""

    round: int
    measure: str
    peer: str


def _everybody(_peer: str, _measure: str) -> bool:
    return True


def steps(
    peers: Sequence[str],
    measures: Sequence[str],
    rounds: int,
    once: frozenset[str] = ONCE,
    takes: Callable[[str, str], bool] = _everybody,
) -> list[Step]:
    """Peers take turns within each measure of each round, so that a slow moment of the machine meets all; another one begins each round.

    `takes` tells who takes part in a measure.
    """
    found = []
    for number in range(rounds):
        for measure in measures:
            if number and measure in once:
                continue
            present = [peer for peer in peers if takes(peer, measure)]
            turn = number % len(present) if present else 0
            found += [Step(number, measure, peer) for peer in [*present[turn:], *present[:turn]]]
    return found
