"""How claims go round groups: every group is reached, tenants have one turn each, and a claim visits a bounded number of them."""

from __future__ import annotations

from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mulligan.core.choosing import Choice, Line, Turn, Waiting, choose, turns_of
from mulligan.core.groups import DOWNSTREAM, behind, group_of, tenant_of
from mulligan.core.limits import Ledger, Limit, Slots
from mulligan.core.ring import (
    SPARE_GROUPS,
    STRETCHES_MAX,
    TENANT_GROUPS,
    TOP,
    VISITS_MAX,
    Arc,
    Bounds,
    Round,
    Stretches,
    Visits,
    Walk,
    bounds_of,
    is_short,
    whole_round,
)
from tests.builders import ask, bucket

PLACE = ("q", "fresh", 0)
NAMES = st.text(st.sampled_from("ab \x01\x1e!ä"), max_size=3)
SHUT = bucket("shut", burst=0, part=DOWNSTREAM, value="d")
Tenants = dict[str, int]  # how many groups each has


def groups_of(tenants: Tenants) -> list[str]:
    """All groups, in their order."""
    return sorted(str(group_of(name, "d", None, f"k{number:05}")) for name, many in tenants.items() for number in range(many))


def visits(groups: list[str], arc: Arc, bounds: Bounds) -> Visits:
    """What a store answers where every group is due."""
    walk = Walk(bounds)
    for start, end in ((arc.start, arc.high), (arc.low, arc.until)):
        position = start
        walk.turn_over()
        while (at := bisect_right(groups, position)) < len(groups) and groups[at] <= end:
            if walk.leaps_over(groups[at]):
                position = behind(tenant_of(groups[at]))
            elif walk.ends_before(groups[at]):
                return Visits(walk.groups, is_cut=True)
            else:
                walk.visit(groups[at], True)
                position = groups[at]
    return Visits(walk.groups, is_cut=False)


def look(groups: list[str], after: str, known: Stretches, bounds: Bounds) -> Round:
    """One way round, with its stretches."""
    round_ = Round(PLACE, bounds)
    for stretch in round_.walk(visits(groups, whole_round(after), bounds), known):
        round_.stretch(stretch.tenant, visits(groups, stretch.arc, stretch.bounds))
    return round_


class Claims:
    """Claims one after the other on groups that always have a due job."""

    def __init__(self, groups: list[str], limits: tuple[Limit, ...] = ()) -> None:
        self._groups = groups
        self._limits = limits
        self._known = Stretches()
        self.after = ""

    def claim(self, total: int) -> tuple[list[str], list[str]]:
        """The groups that were looked at, and those that were served."""
        wish = ask(after=self.after, limits=self._limits)
        for wide in (False, True):
            round_ = look(self._groups, self.after, self._known, bounds_of(total, wide=wide))
            lines = [Line("fresh", group, [Waiting(0, group)]) for group in round_.due]
            choice = choose(total, [wish], [[*lines, *round_.marks()]], Ledger(0, {}, {}))
            if not is_short(total, len(choice.jobs), [round_]):
                break
        [turn] = turns_of([wish], [[*lines, *round_.marks()]], choice)
        self._known.learn([[round_]], [turn])
        self.after = turn.after
        return round_.due, [str(one.line.group) for one in choice.jobs]


some_tenants = st.dictionaries(NAMES, st.integers(1, 30) | st.integers(1, 1_500), min_size=1, max_size=8)


@given(some_tenants, st.sampled_from([1, 3, 10, 100]))
def test_every_group_is_looked_at_while_all_are_held_back(tenants: Tenants, total: int) -> None:
    """In as many claims as it takes at VISITS_MAX each, and one more for each tenant with many groups, whatever the names are."""
    groups = groups_of(tenants)
    claims, seen = Claims(groups, (SHUT,)), set[str]()
    for _ in range(2 * (len(groups) // VISITS_MAX + len(tenants)) + 1):
        found, served = claims.claim(total)
        assert served == []
        seen.update(found)
    assert seen == set(groups)


@given(some_tenants, st.sampled_from([1, 3, 10, 100]))
def test_a_claim_looks_at_a_bounded_number_of_groups(tenants: Tenants, total: int) -> None:
    """A few for each job that it wants; VISITS_MAX if it gets none; never more than the last tenant's share beyond that."""
    for limits, most in (((), bounds_of(total).visits), ((SHUT,), VISITS_MAX)):
        claims = Claims(groups_of(tenants), limits)
        for _ in range(5):
            found, _ = claims.claim(total)
            assert len(found) == len(set(found))
            assert len(found) <= most + 2 * bounds_of(total).share


@given(st.dictionaries(NAMES, st.integers(1, 200), min_size=2, max_size=8), st.lists(st.integers(1, 7), min_size=1, max_size=30))
def test_tenants_take_turns_however_many_groups_they_have(tenants: Tenants, totals: list[int]) -> None:
    """Between two starts for one tenant every other is served."""
    claims, since = Claims(groups_of(tenants)), dict[str, set[str]]()
    for total in totals:
        for group in claims.claim(min(total, len(tenants)))[1]:
            name = tenant_of(group)
            assert name not in since or since[name] == tenants.keys() - {name}
            for others in since.values():
                others.add(name)
            since[name] = set()


@given(st.dictionaries(NAMES, st.integers(1, 300), min_size=1, max_size=5), st.integers(1, 5))
def test_every_group_of_a_tenant_is_listed_in_its_turns(tenants: Tenants, total: int) -> None:
    """A tenant with g groups has all of them listed in g / share of its turns, and one more."""
    groups = groups_of(tenants)
    claims, seen = Claims(groups), set[str]()
    turns = max(tenants.values()) // bounds_of(total).share + 2
    for _ in range(-(-turns * len(tenants) // min(total, len(tenants)))):
        seen.update(claims.claim(min(total, len(tenants)))[0])
    assert seen == set(groups)


def test_a_tenant_that_was_not_served_keeps_its_stretch() -> None:
    """Being listed in case others are held back is no turn."""
    groups = groups_of({"a": 1, "b": 1, "c": 200})
    claims = Claims(groups)
    listed = [[group for group in claims.claim(1)[0] if tenant_of(group) == "c"] for _ in range(4)]
    share = bounds_of(1).share
    assert listed[0] == listed[1] == listed[2] != listed[3]
    assert listed[3][:2] == groups[2 + share : 4 + share]


def test_bounds() -> None:
    """Some groups to spare, a share for each tenant, and never more than VISITS_MAX visits."""
    assert bounds_of(1) == Bounds(1 + SPARE_GROUPS, 1, 2 + 2 * SPARE_GROUPS, 1 + SPARE_GROUPS)
    assert bounds_of(100) == Bounds(100 + SPARE_GROUPS, 100, 100 * TENANT_GROUPS, TENANT_GROUPS)
    assert bounds_of(5_000).visits == bounds_of(1, wide=True).visits == VISITS_MAX


def test_top_is_behind_every_group() -> None:
    """Also behind those of a tenant whose name is made of the last character there is."""
    assert str(group_of("\U0010ffff" * 128, None, None, "k")) < TOP


def test_a_sparse_round_lists_the_oldest_too() -> None:
    """One that stopped with hardly anything due."""
    round_ = Round(PLACE, bounds_of(3))
    names = [str(group_of(f"t{number}", None, None, None)) for number in range(9)]
    assert round_.walk(Visits([(name, name == names[1]) for name in names[:5]], is_cut=True), Stretches()) == []
    assert round_.is_sparse
    round_.list_also([names[8], names[1]])
    assert round_.due == [names[1], names[8]]
    assert [mark.group for mark in round_.marks()] == [names[4]]


def test_stretches_are_forgotten_when_they_are_too_many() -> None:
    """Those that were noted longest ago."""
    known, turn = Stretches(), Turn("", "", has_moved=True, is_whole=True)
    for number in range(STRETCHES_MAX + 5):
        round_ = Round(PLACE, bounds_of(1))
        round_.ends = {f"t{number}": "end"}
        known.learn([[round_]], [turn])
    assert [known.end_of(PLACE, f"t{number}") for number in (0, 4, 5, STRETCHES_MAX + 4)] == [None, None, "end", "end"]


# -- Where the turn goes on ----------------------------------------------------------------------------------------------


def line(name: str, lane: str = "fresh", *, jobs: int = 1, on: str = "e") -> Line:
    """A line of one tenant."""
    return Line(lane, group_of(name, on, None, None), [Waiting(0, f"{lane}{name}{on}{number}") for number in range(jobs)])  # type: ignore[arg-type]


def mark(name: str, lane: str = "fresh") -> Line:
    """The place where a way round stopped."""
    return Line(lane, group_of(name, None, None, None), [], is_cut=True)  # type: ignore[arg-type]


def after_of(own: list[Line], total: int, limits: tuple[Limit, ...] = (SHUT,), lane: str | None = "fresh", **fields: object) -> str:
    """Where an ask that begins behind b goes on."""
    wish = ask(lane=lane, after="b ", limits=limits, **fields)  # type: ignore[arg-type]
    choice: Choice = choose(total, [wish], [own], Ledger(0, {}, {}))
    [turn] = turns_of([wish], [own], choice)
    return turn.after


def test_the_turn_does_not_pass_over_what_was_not_looked_at() -> None:
    """Where one lane was seen further than the other, it goes on where the shorter look ended."""
    own = [line("c", on="d"), mark("d"), line("c", "retry", on="d"), line("x", "retry")]
    assert after_of(own, 5, lane=None) == "d "
    assert after_of([*own, mark("cc", "retry")], 5, lane=None) == "cc "
    assert after_of([line("c"), line("d"), mark("e")], 1) == "c "


def test_the_turn_stays_where_nobody_had_it() -> None:
    """Nothing was guaranteed, or all slots of the queue were taken: the first tenant is still the next one."""
    own = [line("c"), line("d"), mark("e")]
    assert after_of(own, 0) == "b "
    assert after_of(own, 5, (Slots(most=0),)) == "b "
    assert after_of(own, 5, (Slots(most=1),)) == "c "


def test_the_turn_goes_on_behind_those_that_are_held_back() -> None:
    """By what is their group's own; whether or not others were served."""
    shut = [line(name, on="d") for name in "cde"]
    assert after_of([*shut, mark("f")], 5) == "f "
    assert after_of([line("ca"), *shut, mark("f")], 5) == "f "
    assert after_of([line("ca", jobs=9), *shut, mark("f")], 5) == "ca "
    assert after_of([*shut, line("a")], 5) == "a "
    assert after_of(shut, 5) == "b "


@pytest.mark.parametrize("name", ["a", "c"])
def test_a_way_that_ended_within_a_tenant_goes_on_there(name: str) -> None:
    """If nobody was served; the rest of its groups has not been seen."""
    within = Line("fresh", group_of(name, "d", None, "k7"), [], is_cut=True, is_within=True)
    assert after_of([line("c", on="d"), within], 5) == within.group
    assert after_of([line("c"), within], 5) == "c "
