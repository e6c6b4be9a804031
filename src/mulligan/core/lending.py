"""How a claim's total is shared among its asks. Pure, so that every store shares it alike."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence


def allot(
    total: int, guaranteed: Sequence[int], available: Sequence[int], groups: Sequence[tuple[Hashable, Hashable]] | None = None
) -> list[int]:
    """How many jobs each ask gets: its guaranteed share first, then what the others left, in the order of the asks.

    `groups` names the (queue, lane) of each ask. With it, a share that one priority level leaves unused goes to the other levels
    of its lane first, then to the other lane of its queue, and only then to other queues, whose lanes take it in the proportion
    of their guarantees. Without that order an empty urgent level would hand its lane's guarantee to the other lane. An ask of
    a paused queue has nothing available; it belongs into the lists all the same, so that its share is lent like any other.
    """
    left = total
    takes = []
    guaranteed = [max(0, own) for own in guaranteed]
    for own, waiting in zip(guaranteed, available, strict=True):
        take = min(own, waiting, left)
        takes.append(take)
        left -= take
    if groups is not None:
        lanes = _members(groups)
        for members in (*lanes, *_members([queue for queue, _ in groups])):
            unused = sum(guaranteed[i] for i in members) - sum(takes[i] for i in members)
            left -= _lend(min(left, unused), members, takes, available)
        left -= _lend_in_proportion(min(left, sum(guaranteed) - sum(takes)), lanes, guaranteed, takes, available)
    _lend(left, range(len(takes)), takes, available)
    return takes


def _members(keys: Sequence[Hashable]) -> list[list[int]]:
    """The positions of equal keys, in the order in which the keys first appear."""
    found: dict[Hashable, list[int]] = {}
    for position, key in enumerate(keys):
        found.setdefault(key, []).append(position)
    return list(found.values())


def _lend(amount: int, members: Iterable[int], takes: list[int], available: Sequence[int]) -> int:
    """Hands out up to `amount` in the order of the members; returns how much was taken."""
    left = amount
    for position in members:
        extra = min(left, available[position] - takes[position])
        takes[position] += extra
        left -= extra
    return amount - left


def _lend_in_proportion(
    amount: int, lanes: Sequence[Sequence[int]], guaranteed: Sequence[int], takes: list[int], available: Sequence[int]
) -> int:
    """Hands out up to `amount` in rounds in which each lane takes in the measure of its guarantee; returns how much was taken."""
    left = amount
    while left > 0:
        waiting = [members for members in lanes if any(available[i] > takes[i] for i in members)]
        weights = [sum(guaranteed[i] for i in members) for members in waiting]
        if not any(weights):
            break
        round_, reached, given = left, 0, 0
        for members, weight in zip(waiting, weights, strict=True):
            # Up to here together their part, rounded up: what does not divide goes to those that stand first.
            reached += weight
            upto = -(-round_ * reached // sum(weights))
            left -= _lend(upto - given, members, takes, available)
            given = upto
    return amount - left
