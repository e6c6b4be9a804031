from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mulligan.core.choosing import Choice, Line, Waiting, choose, has_groups, in_turns, needs, next_after, sooner
from mulligan.core.clock import SECOND_US
from mulligan.core.contract import Ask
from mulligan.core.groups import DOWNSTREAM, FAIR, KEY, TASK, group_of, tenant_of
from mulligan.core.job import LANES
from mulligan.core.limits import TOKEN, Bucket, Ledger, Level, Limit, Scope, Slots
from mulligan.core.ring import heads_of
from tests.builders import ask, bucket

NOW_US = 1_700_000_000 * SECOND_US
PARTS = [("a", None, None, None), ("a", "d", None, None), ("b", None, "t", "k"), (None, "d", None, "k"), ("a b", None, None, None)]
GROUPS = [None, group_of("ä", None, None, "l"), *(group_of(*parts) for parts in PARTS)]
LIMITS: list[Limit] = [
    Slots(most=2),
    Slots(most=3, lane="fresh"),
    Slots(most=1, by_key=True),
    Slots(most=2, lane="retry", by_key=True),
    bucket("all", per_s=0.7, burst=3),
    bucket("other", burst=0.5),
    bucket("retries", per_s=1 / 3, burst=2, ratio=0.25, lane="retry"),
    bucket("tenant", per_s=3, burst=2, part=FAIR),
    bucket("shut", burst=0, part=DOWNSTREAM, value="d"),
    bucket("key", per_s=5, burst=1, part=KEY),
]

some_limits = st.lists(st.sampled_from(LIMITS), max_size=3, unique=True).map(tuple)
Listed = list[tuple[str, str | None, int, bool]]
listed = st.lists(
    st.tuples(st.sampled_from(LANES), st.sampled_from(GROUPS), st.integers(0, 8), st.booleans()), max_size=6, unique_by=lambda one: one[:2]
)
wishes = st.lists(st.tuples(st.sampled_from("qr"), st.sampled_from([None, *LANES]), st.integers(0, 6), listed), min_size=1, max_size=4)
Wishes = list[tuple[str, str | None, int, Listed]]


def lines_of(found: Sequence[Listed], *, cut: bool = True) -> list[list[Line]]:
    """Lines with so many jobs each, all of different jobs."""
    numbers = count()
    return [
        [
            Line(lane, group, [Waiting(number % 3, f"{number:04}") for number in (next(numbers) for _ in range(jobs))], is_cut and cut)
            for lane, group, jobs, is_cut in own
        ]
        for own in found
    ]


def asks_of(given: Wishes, shared: tuple[Limit, ...] = ()) -> list[Ask]:
    """The asks of these wishes, all under the same limits."""
    return [ask(queue, lane, guaranteed=guaranteed, limits=shared) for queue, lane, guaranteed, _ in given]


def book(counts: dict[Scope, int] | None = None, levels: dict[str, Level] | None = None) -> Ledger:
    """What a store has read: by default that nothing runs, and no bucket was ever touched."""
    return Ledger(NOW_US, counts or {}, levels or {})


def taken(choice: Choice) -> list[str]:
    """The ids of the chosen jobs."""
    return [one.job.id for one in choice.jobs]


# -- What holds of every choice ------------------------------------------------------------------------------------------


@given(st.integers(1, 12), wishes, some_limits, st.dictionaries(st.sampled_from(["all", "tenant/a"]), st.integers(0, 2 * TOKEN)))
def test_a_choice_keeps_the_limits_and_leaves_nothing_it_could_take(
    total: int, given: Wishes, limits: tuple[Limit, ...], levels_u: dict[str, int]
) -> None:
    """Never over a limit or the total, no job twice; what is left over when it is not full, no limit admits."""
    asks, lines = asks_of(given, limits), lines_of([found for *_, found in given])
    ledger = book(levels={key: Level(level_u, NOW_US) for key, level_u in levels_u.items()})
    choice = choose(total, asks, lines, ledger)
    assert len(choice.jobs) <= total
    assert len(set(taken(choice))) == len(choice.jobs)
    spent, left = ledger.copy(), list(choice.jobs)
    while left:  # in some order each of them is admitted: fresh starts may bring tokens for retries
        start = next((one for one in left if spent.admits(asks[one.ask].queue, one.line.lane, one.line.group, asks[one.ask].limits)), None)
        assert start is not None
        spent.charge(asks[start.ask].queue, start.line.lane, start.line.group, asks[start.ask].limits)
        left.remove(start)
    if len(choice.jobs) < total:
        waiting = {(place, line.lane, line.group) for place, own in enumerate(lines) for line in own if not _all_in(line, choice)}
        assert not any(spent.admits(asks[place].queue, lane, group, asks[place].limits) for place, lane, group in waiting)
        assert choice.held_back == {asks[place].queue for place, *_ in waiting}
    else:
        assert (choice.held_back, choice.wait_us, choice.has_more) == (frozenset(), None, False)


def _all_in(line: Line, choice: Choice) -> bool:
    return {job.id for job in line.jobs} <= set(taken(choice))


@given(st.integers(1, 12), wishes, some_limits)
def test_a_choice_changes_nothing(total: int, given: Wishes, limits: tuple[Limit, ...]) -> None:
    """The ledger is only looked at, so choosing again gives the same; and `needs` names everything that is looked at."""
    asks, lines = asks_of(given, limits), lines_of([found for *_, found in given])
    ledger = book()
    first = choose(total, asks, lines, ledger)
    assert choose(total, asks, lines, ledger) == first
    assert ledger.writes() == {}
    scopes, buckets = needs(asks, lines)
    shown = book(dict.fromkeys(scopes, 10**6), {key: Level(0, NOW_US) for key in buckets})
    limited = {
        one.job.id for own in map(in_turns, range(len(asks)), lines, ("",) * len(asks), (limits,) * len(asks)) for one in own if one.limits
    }
    for_one_lane = [limit.lane for limit in limits if limit.lane is not None]
    if not for_one_lane:  # a limit of the other lane is named, and holds nothing back
        assert not limited & set(taken(choose(total, asks, lines, shown)))


@given(st.integers(0, 20), wishes)
def test_guarantees_are_kept(total: int, given: Wishes) -> None:
    """Shares that fit into the total are given in full while the jobs are there, and the total is used up."""
    asks, lines = asks_of(given), lines_of([found for *_, found in given])
    choice = choose(total, asks, lines, book())
    got = Counter(one.ask for one in choice.jobs)
    there = [sum(len(line.jobs) for line in own) for own in lines]
    assert len(choice.jobs) == min(total, sum(there))
    if sum(one.guaranteed for one in asks) <= total:
        assert all(got[place] >= min(one.guaranteed, there[place]) for place, one in enumerate(asks))


@given(st.integers(1, 20), wishes, st.lists(some_limits, min_size=4, max_size=4))
def test_guarantees_are_kept_under_limits_of_ones_own(total: int, given: Wishes, limits: list[tuple[Limit, ...]]) -> None:
    """An ask that shares its limits with no other gets its share, as far as these admit it."""
    asks = [
        replace(one, queue=f"{one.queue}{place}", limits=tuple(_renamed(limit, place) for limit in limits[place]))
        for place, one in enumerate(asks_of(given))
    ]
    lines = lines_of([found for *_, found in given])
    got = Counter(one.ask for one in choose(total, asks, lines, book()).jobs)
    alone = [len(choose(total, [one], [own], book()).jobs) for one, own in zip(asks, lines, strict=True)]
    if sum(one.guaranteed for one in asks) <= total:
        assert all(got[place] >= min(one.guaranteed, alone[place]) for place, one in enumerate(asks))


def _renamed(limit: Limit, place: int) -> Limit:
    return limit if isinstance(limit, Slots) else replace(limit, key=f"{limit.key}{place}")


@given(st.integers(1, 20), listed, st.sampled_from(["", "a ", "b ", "zz"]))
def test_tenants_take_turns(total: int, found: Listed, after: str) -> None:
    """Of two tenants that still have jobs none is ahead by more than one; the first ones stand behind `after`."""
    lines = lines_of([found])
    choice = choose(total, [ask(lane=None, after=after)], lines, book())
    got = Counter(tenant_of(one.line.group) for one in choice.jobs)
    for line in lines[0]:
        tenant = tenant_of(line.group)
        if not _all_in(line, choice):
            assert got[tenant] + 1 >= max(got.values(), default=0)
    order = list(dict.fromkeys(tenant_of(one.line.group) for one in choice.jobs))
    marks = [(name + "\x1f" <= after, name) for name in order]
    assert marks == sorted(marks)


def test_a_job_listed_by_two_asks_is_taken_once() -> None:
    """It stands in the line of the first."""
    line = Line("fresh", None, [Waiting(1, "x"), Waiting(2, "y")])
    choice = choose(5, [ask(lane=None), ask()], [[line], [line]], book())
    assert [(one.ask, one.job.id) for one in choice.jobs] == [(0, "x"), (0, "y")]


# -- Turns over many claims ----------------------------------------------------------------------------------------------


def served(waiting: dict[str, int], totals: Sequence[int], limits: tuple[Limit, ...] = (), lane: str | None = "fresh") -> list[list[str]]:
    """Which tenants (by their groups) each claim serves, one claim after the other, where each group has so many jobs."""
    numbers, after, answers, left = count(), "", [], dict(waiting)
    for total in totals:
        wish = ask(lane=lane, after=after, limits=limits)
        lines = [
            Line("fresh", group, [Waiting(0, f"{next(numbers):06}") for _ in range(jobs)]) for group, jobs in sorted(left.items()) if jobs
        ]
        choice = choose(total, [wish], [lines], book())
        for one in choice.jobs:
            left[str(one.line.group)] -= 1
        if has_groups([lines]):
            [after] = next_after([wish], [lines], choice)
        answers.append([tenant_of(one.line.group) for one in choice.jobs])
    return answers


TENANTS = st.dictionaries(st.text(st.sampled_from("ab \x01\x1e!ä"), max_size=3), st.integers(1, 40), min_size=2, max_size=6)


@given(TENANTS, st.lists(st.integers(1, 7), min_size=5, max_size=40), st.booleans())
def test_no_tenant_is_skipped_from_claim_to_claim(tenants: dict[str, int], totals: list[int], several: bool) -> None:
    """Between two starts for one tenant every other that waits is served, whatever its name is and however many groups it has."""
    waiting = {}
    for name, jobs in tenants.items():
        groups = [group_of(name, "d", None, key) for key in (("k", "l") if several else ("k",))]
        waiting |= {str(group): -(-jobs // len(groups)) for group in groups}
    left = Counter(dict.fromkeys(tenants, 0))
    for group, jobs in waiting.items():
        left[tenant_of(group)] += jobs
    since: dict[str, set[str]] = {}
    for batch in served(waiting, totals):
        for name in batch:
            if name in since:
                assert {other for other in tenants if left[other]} - {name} <= since[name]
            since[name] = set()
            left[name] -= 1
            for met in since.values():
                met.add(name)


def test_a_tenant_that_is_held_back_does_not_stop_the_turns() -> None:
    """The others go on in turn, and nobody waits for the one whose downstream is shut."""
    waiting = {str(group_of(name, "d" if name == "b" else "e", None, None)): 9 for name in "abcd"}
    shut = bucket("shut", burst=0, part=DOWNSTREAM, value="d")
    assert served(waiting, [1] * 6, (shut,)) == [["a"], ["c"], ["d"]] * 2
    assert served(waiting, [2] * 3, (shut,)) == [["a", "c"], ["d", "a"], ["c", "d"]]


def test_a_held_back_level_leaves_its_share_to_the_others() -> None:
    """Urgent jobs whose downstream is shut do not keep raised and normal ones waiting."""
    shut = bucket("shut", burst=0, part=DOWNSTREAM, value="d")
    asks = [ask(priority=priority, guaranteed=guaranteed, limits=(shut,)) for priority, guaranteed in ((2, 7), (1, 2), (0, 1))]
    lines = lines_of([[("fresh", group_of(None, "d", None, None), 20, False)], [("fresh", None, 20, False)], [("fresh", None, 20, False)]])
    choice = choose(10, asks, lines, book())
    assert Counter(one.ask for one in choice.jobs) == {1: 9, 2: 1}  # what is lent goes in the order of the asks


def test_where_the_turn_goes_on() -> None:
    """Behind the tenant served last; where none was, behind the last group that was looked at; without groups it stays."""
    lines = lines_of([[("fresh", group_of("a", "d", None, None), 2, False), ("fresh", group_of("c", "d", None, None), 2, False)]])
    [own] = lines
    wish = ask(after="b ")
    assert next_after([wish], lines, choose(1, [wish], lines, book())) == ["c "]
    assert next_after([wish], lines, choose(2, [wish], lines, book())) == ["a "]
    shut = replace(wish, limits=(bucket("shut", burst=0, part=DOWNSTREAM, value="d"),))
    cut = [[*own, Line("fresh", group_of("x", None, None, None), [], is_cut=True)]]
    choice = choose(2, [shut], cut, book())
    assert next_after([shut], cut, choice) == ["x "]
    assert choice.has_more
    plain = lines_of([[("fresh", None, 2, False)]])
    assert next_after([wish], plain, choose(1, [wish], plain, book())) == ["b "]
    assert (has_groups(lines), has_groups(plain)) == (True, False)


# -- What a choice tells beside its jobs ---------------------------------------------------------------------------------


def test_obstacles_are_told_with_the_shortest_wait() -> None:
    """The queues where a limit stood in the way, and when the first of their buckets has a token."""
    asks = [
        ask("q", limits=(bucket("q", per_s=0.5),)),
        ask("r", limits=(bucket("r", per_s=2),)),
        ask("s"),
        ask("t", limits=(Slots(most=0),)),
    ]
    lines = lines_of([[("fresh", None, 1, False)]] * 4)
    choice = choose(9, asks, lines, book(levels={"q": Level(0, NOW_US), "r": Level(0, NOW_US)}))
    assert (choice.held_back, choice.wait_us, len(choice.jobs)) == (frozenset("qrt"), SECOND_US // 2, 1)
    assert sooner([None, NOW_US + SECOND_US], choice, NOW_US) == NOW_US + SECOND_US // 2
    assert sooner([NOW_US + 5], choice, NOW_US) == NOW_US + 5
    assert sooner([None], None, NOW_US) is None


def test_another_look_may_find_more_behind_a_cut() -> None:
    """Only where everything that was seen of a line is taken, and there was room for more."""
    full = lines_of([[("fresh", None, 3, True)]])
    assert choose(4, [ask()], full, book()).has_more
    assert not choose(3, [ask()], full, book()).has_more
    assert not choose(4, [ask(limits=(Slots(most=2),))], full, book()).has_more
    assert sooner([None], choose(4, [ask()], full, book()), NOW_US) == NOW_US


def test_a_short_limit_is_drawn_from_in_proportion() -> None:
    """Two asks of one queue with shares of four to one share six slots as near to that as whole slots go."""
    asks = [ask("q", "fresh", guaranteed=8, limits=(Slots(most=6),)), ask("q", "retry", guaranteed=2, limits=(Slots(most=6),))]
    lines = lines_of([[("fresh", None, 20, False)], [("retry", None, 20, False)]])
    assert Counter(one.ask for one in choose(10, asks, lines, book()).jobs) == {0: 5, 1: 1}


def test_a_line_meets_only_its_own_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits of hundreds of other tasks and downstreams cost a choice nothing but a look at each, not one per line and job."""
    calls = count()
    plain = Bucket.key_for
    monkeypatch.setattr(Bucket, "key_for", lambda self, group: (next(calls), plain(self, group))[1])
    lines = lines_of([[("fresh", group_of(f"{tenant:03}", None, f"t{tenant % 2}", None), 4, False) for tenant in range(50)]])
    costs = []
    for tasks in (2, 400):
        limits = tuple(bucket(f"t{number}", burst=9, part=TASK, value=f"t{number}") for number in range(tasks))
        before = next(calls)
        assert len(choose(60, [ask(limits=limits)], lines, book()).jobs) == 18
        needs([ask(limits=limits)], lines)
        costs.append(next(calls) - before)
    assert costs[0] == costs[1]


@pytest.mark.parametrize(("limit", "groups", "heads"), [(1, 0, 1), (1, 1, 1), (100, 1, 100), (100, 4, 100), (100, 50, 8), (10, 500, 1)])
def test_few_jobs_of_each_of_many_groups_are_listed(limit: int, groups: int, heads: int) -> None:
    """Enough for some rounds, never more than the claim could take."""
    assert heads_of(limit, groups) == heads
