"""Rounds over more groups than one claim looks at."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mulligan.core.contract import Ask, Claimed
from mulligan.core.groups import behind
from mulligan.worker.rounds import Rounds
from tests.builders import ask

Lists = st.lists(st.lists(st.text("abc", min_size=1, max_size=3), max_size=12, unique=True), min_size=1, max_size=3)


def looked_at(names: list[str], after: str, most: int) -> list[str]:
    """The names that a claim which begins behind `after` looks at, in its order."""
    ring = [name for name in sorted(names) if name + "\x1f" > after] + [name for name in sorted(names) if name + "\x1f" <= after]
    return ring[:most]


@given(Lists, st.integers(1, 8), st.lists(st.sampled_from(["", "a ", "b ", "zz"]), min_size=3, max_size=3))
def test_a_round_is_complete_when_every_group_was_looked_at(lists: list[list[str]], most: int, starts: list[str]) -> None:
    """Not before that, and at most two claims later, wherever the turns of each line began."""
    rounds, afters, seen = Rounds(), starts[: len(lists)], [set[str]() for _ in lists]
    claims = 0
    while claims < 100:
        claims += 1
        asks: list[Ask] = [ask(priority=place, after=after) for place, after in enumerate(afters)]
        for place, names in enumerate(lists):
            found = looked_at(names, afters[place], most)
            seen[place] |= set(found)
            afters[place] = behind(found[-1]) if found else afters[place]
        if rounds.is_complete(asks, Claimed(jobs=[], now_us=0, next_due_us=0, turns=tuple(afters))):
            break
    assert seen == [set(names) for names in lists]
    assert claims <= -(-max(map(len, lists)) // most) + 2


def test_without_turns_nothing_is_known() -> None:
    """An answer that met no group says nothing about a round."""
    assert not Rounds().is_complete([ask()], Claimed(jobs=[], now_us=0, next_due_us=0))


def test_a_new_round_begins_where_the_turns_stand() -> None:
    """What the last one has seen does not count for the next."""
    rounds = Rounds()
    steps = [("", "b "), ("b ", "d "), ("d ", "b ")]
    answers = [
        rounds.is_complete([ask(after=before)], Claimed(jobs=[], now_us=0, next_due_us=0, turns=(after,))) for before, after in steps
    ]
    assert answers == [False, False, True]
    rounds.begin()
    assert not rounds.is_complete([ask(after="b ")], Claimed(jobs=[], now_us=0, next_due_us=0, turns=("d ",)))
