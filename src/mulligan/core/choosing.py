"""Which of the waiting jobs a claim takes, where limits or groups have a say. Pure; every store chooses alike.

A store lists, per ask, the lines the ask may draw from: one for each lane and group, with the first due jobs in it. `needs` says what
it must read for the limits, `choose` picks the jobs:
- inside an ask, tenants take turns; inside a tenant the oldest comes first;
- between asks, guarantees and lending are those of core/lending; where a limit is shared by several asks and is short, they draw from it
  in the proportion of what they would have got, the ask that stands first beginning;
- a job that a limit does not admit is passed over, and what that leaves free goes to the others.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from heapq import merge
from typing import TYPE_CHECKING, Any, NamedTuple

from mulligan.core.groups import SEPARATOR, behind, tenant_of
from mulligan.core.job import Lane
from mulligan.core.lending import allot
from mulligan.core.limits import Ledger, Limit, Scope, Slots, Terms, scope_of

if TYPE_CHECKING:
    from mulligan.core.contract import Ask


class Waiting(NamedTuple):
    """A due job that may be taken."""

    at_us: int  # its place in the order of the ask: run_at or created_at
    id: str
    ref: Any = None  # what the store needs to take it


class Line(NamedTuple):
    """The first due jobs of one lane and group, in their order."""

    lane: Lane
    group: str | None
    jobs: Sequence[Waiting]
    is_cut: bool = False  # there may be more behind these; without jobs: the way round the groups (core/ring) stopped here
    is_within: bool = False  # it came round, and stopped in the middle of the groups of one tenant


class Chosen(NamedTuple):
    """A job to take, with the ask and the line it stood in."""

    ask: int
    line: Line
    job: Waiting
    limits: tuple[Limit, ...] = ()  # those of the ask that are for this line


class Choice(NamedTuple):
    """What a claim takes, and what it could not."""

    jobs: list[Chosen]  # in the order of the asks, inside each in its order
    held_back: frozenset[str]  # queues where a limit passed over a due job
    wait_us: int | None  # until a bucket that did so has a token again, if that is known
    has_more: bool  # not full, and yet another look may find more
    open: frozenset[int] = frozenset()  # asks that leave a job which no limit of its own group holds back


class Turn(NamedTuple):
    """Where an ask begins next time, and whose turn has come until then."""

    began: str
    after: str
    has_moved: bool = False
    is_whole: bool = False  # it was everybody's

    def has_come(self, tenant: str) -> bool:
        """Whether the turn of this tenant has come, so that it is served again only after all others."""
        return self.is_whole or (self.has_moved and _way(self.began, behind(tenant)) <= _way(self.began, self.after))


def needs(asks: Sequence[Ask], lines: Sequence[Sequence[Line]]) -> tuple[set[Scope], set[str]]:
    """What a store must read to fill the ledger: the scopes to count, and the buckets."""
    scopes: set[Scope] = set()
    buckets: set[str] = set()
    for ask, own in zip(asks, lines, strict=True):
        if not own:
            continue
        terms = Terms(ask.limits)
        for line in own:
            if not line.jobs:
                continue
            for limit in terms.for_line(line.lane, line.group):
                if isinstance(limit, Slots):
                    scopes.add(scope_of(limit, ask.queue, line.group))
                elif (key := limit.key_for(line.group)) is not None:
                    buckets.add(key)
    return scopes, buckets


def choose(total: int, asks: Sequence[Ask], lines: Sequence[Sequence[Line]], ledger: Ledger) -> Choice:
    """The jobs to take. The ledger is not spent: charge it with what was really taken."""
    rank: dict[str, int] = {}  # a job stands in the line of the first ask that lists it
    waiting: list[list[Chosen]] = []
    for place, (ask, own) in enumerate(zip(asks, lines, strict=True)):
        in_order = [one for one in in_turns(place, own, ask.after, ask.limits) if one.job.id not in rank]
        rank |= {one.job.id: number for number, one in enumerate(in_order, start=len(rank))}
        waiting.append(in_order)
    spent = ledger.copy()
    chosen: list[Chosen] = []
    while len(chosen) < total:
        more = _round(total - len(chosen), asks, waiting, chosen, spent)
        chosen += more
        gone = {one.job.id for one in more}
        waiting = [[one for one in own if one.job.id not in gone] for own in waiting]
        if not more:
            break
    chosen.sort(key=lambda one: rank[one.job.id])
    for one in chosen:
        ledger.look(one.line.group, one.limits)
    left_over = [one for own in waiting for one in own] if len(chosen) < total else []
    held_back, wait_us = _obstacles(asks, left_over, spent)
    taken = {one.job.id for one in chosen}
    has_more = len(chosen) < total and any(_is_used_up(line, taken) for own in lines for line in own)
    is_open = (place for place, own in enumerate(lines) if _has_group(own) and _is_open(asks[place].queue, waiting[place], spent))
    return Choice(chosen, held_back, wait_us, has_more, frozenset(is_open))


def _round(total: int, asks: Sequence[Ask], waiting: Sequence[list[Chosen]], chosen: list[Chosen], spent: Ledger) -> list[Chosen]:
    """Up to `total` jobs, shared out among the asks. None if no limit admits any of those that wait."""
    had = [0] * len(asks)
    for one in chosen:
        had[one.ask] += 1
    admissible = [_admissible(ask, own, spent, total) for ask, own in zip(asks, waiting, strict=True)]
    owed = [max(0, ask.guaranteed - own) for ask, own in zip(asks, had, strict=True)]
    groups = [(ask.queue, ask.lane) for ask in asks]
    takes = allot(total, owed, [len(own) for own in admissible], groups)
    # Where a limit is shared and short, whoever comes first has it. So they come mixed, in the proportion they would have without it.
    shares = allot(total, owed, [len(own) for own in waiting], groups)
    picks = sorted((number / max(1, shares[place]), place, number) for place, take in enumerate(takes) for number in range(take))
    taken = []
    for _, place, number in picks:
        one, ask = admissible[place][number], asks[place]
        if spent.admits(ask.queue, one.line.lane, one.line.group, one.limits):
            spent.charge(ask.queue, one.line.lane, one.line.group, one.limits)
            taken.append(one)
    return taken


def _obstacles(asks: Sequence[Ask], left_over: Sequence[Chosen], spent: Ledger) -> tuple[frozenset[str], int | None]:
    """The queues where a limit held jobs back, and until when at the least."""
    held_back: set[str] = set()
    waits: list[int] = []
    for (place, lane, group), limits in {(one.ask, one.line.lane, one.line.group): one.limits for one in left_over}.items():
        queue = asks[place].queue
        if not spent.admits(queue, lane, group, limits):
            held_back.add(queue)
            wait_us = spent.wait_us(lane, group, limits)
            if wait_us is not None:
                waits.append(wait_us)
    return frozenset(held_back), min(waits, default=None)


def _admissible(ask: Ask, line: Sequence[Chosen], ledger: Ledger, most: int) -> list[Chosen]:
    """The jobs of an ask that would be admitted if it were alone, at most so many."""
    if not ask.limits:
        return list(line[:most])
    spent = ledger.copy()
    admitted: list[Chosen] = []
    for one in line:
        if len(admitted) == most:
            break
        if spent.admits(ask.queue, one.line.lane, one.line.group, one.limits):
            spent.charge(ask.queue, one.line.lane, one.line.group, one.limits)
            admitted.append(one)
    return admitted


def in_turns(place: int, lines: Sequence[Line], after: str, limits: tuple[Limit, ...] = ()) -> list[Chosen]:
    """The jobs of an ask's lines in the order in which it serves them: tenants in turn, beginning behind `after`."""
    tenants: dict[str, list[Line]] = {}
    for line in lines:
        if line.jobs:
            tenants.setdefault(tenant_of(line.group), []).append(line)
    names = sorted(tenants, key=lambda name: name + SEPARATOR)  # as their groups stand: a name may hold what sorts before the separator
    names = [name for name in names if name + SEPARATOR > after] + [name for name in names if name + SEPARATOR <= after]
    terms = Terms(limits if tenants else ())
    queues = [_oldest_first(place, tenants[name], terms) for name in names]
    if len(queues) == 1:
        return queues[0]
    return [queue[number] for number in range(max(map(len, queues), default=0)) for queue in queues if number < len(queue)]


def _oldest_first(place: int, lines: Sequence[Line], terms: Terms) -> list[Chosen]:
    own = [terms.for_line(line.lane, line.group) for line in lines]
    if len(lines) == 1:
        return [Chosen(place, lines[0], job, own[0]) for job in lines[0].jobs]
    parts = [[(job.at_us, job.id, number, job) for job in line.jobs] for number, line in enumerate(lines)]
    return [Chosen(place, lines[number], job, own[number]) for _, _, number, job in merge(*map(sorted, parts))]


def _is_open(queue: str, left: Sequence[Chosen], spent: Ledger) -> bool:
    """Whether one of these jobs is held back by nothing that is its group's own, such as its concurrency key or its downstream."""
    lines = {(one.line.lane, one.line.group): one.limits for one in left}
    return any(spent.admits(queue, lane, group, filter(_is_of_group, limits)) for (lane, group), limits in lines.items())


def _is_of_group(limit: Limit) -> bool:
    return limit.by_key if isinstance(limit, Slots) else limit.part is not None


def turns_of(asks: Sequence[Ask], lines: Sequence[Sequence[Line]], choice: Choice) -> list[Turn]:
    """How far each ask has come: behind the tenant it served last. Tenants of which only limits of their own hold back what was seen had
    their turn; one that got nothing because the claim was full, or a limit of all was reached, has not. What was not looked at is not
    passed over."""
    last = {one.ask: one.line.group for one in choice.jobs}
    turns = []
    for place, (ask, own) in enumerate(zip(asks, lines, strict=True)):
        marks = [line for line in own if line.is_cut and not line.jobs and line.group is not None]
        stops = [behind(tenant_of(line.group)) for line in marks if not line.is_within]
        stop = min(stops, key=lambda text: _way(ask.after, text), default=None)
        served = behind(tenant_of(last[place])) if place in last else None
        if not _has_group(own) or (served is None and place in choice.open):
            turns.append(Turn(ask.after, ask.after))
        elif served is not None and place in choice.open and (stop is None or _way(ask.after, served) <= _way(ask.after, stop)):
            turns.append(Turn(ask.after, served, has_moved=True))
        elif stop is not None:
            turns.append(Turn(ask.after, stop, has_moved=True))
        else:  # it was everybody's turn; where some of a tenant's groups were left out, the next ones are those
            within = next((str(line.group) for line in marks), ask.after)
            turns.append(Turn(ask.after, served or within, has_moved=True, is_whole=True))
    return turns


def _way(after: str, text: str) -> tuple[bool, str]:
    """By which places on the way from behind `after` round to it are compared."""
    return (text <= after, text)


def next_after(asks: Sequence[Ask], lines: Sequence[Sequence[Line]], choice: Choice) -> list[str]:
    """Where each ask begins next time."""
    return [turn.after for turn in turns_of(asks, lines, choice)]


def used_up(total: int, lines: Sequence[Sequence[Line]], choice: Choice) -> list[tuple[int, Lane, str]]:
    """Asks, lanes and groups of which all that was listed is taken, while there may be more and the claim is not full."""
    if len(choice.jobs) >= total:
        return []
    taken = {one.job.id for one in choice.jobs}
    return [
        (place, line.lane, line.group)
        for place, own in enumerate(lines)
        for line in own
        if line.group is not None and line.jobs and _is_used_up(line, taken)
    ]


def with_longer(lines: Sequence[Sequence[Line]], longer: Mapping[tuple[int, Lane, str], Line]) -> list[list[Line]]:
    """The lines, some of them listed anew: by ask, lane and group."""
    return [
        [longer.get((place, line.lane, line.group), line) if line.group is not None and line.jobs else line for line in own]
        for place, own in enumerate(lines)
    ]


def _is_used_up(line: Line, taken: Container[str]) -> bool:
    return line.is_cut and all(job.id in taken for job in line.jobs)


def has_groups(lines: Sequence[Sequence[Line]]) -> bool:
    """Whether any ask met a group."""
    return any(map(_has_group, lines))


def _has_group(own: Sequence[Line]) -> bool:
    return any(line.group is not None for line in own)


def sooner(due_us: Sequence[int | None], choice: Choice | None, now_us: int) -> int | None:
    """When to claim next, from the times at which jobs fall due and from what the choice could not take."""
    if choice is not None and choice.has_more:
        return now_us
    times = [time_us for time_us in due_us if time_us is not None]
    if choice is not None and choice.wait_us is not None:
        times.append(now_us + choice.wait_us)
    return min(times, default=None)
