"""What a claim on the memory store may draw from, and what it chooses of it (core/choosing, core/ring)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from mulligan.core.choosing import Choice, Line, choose, has_groups, turns_of, used_up, with_longer
from mulligan.core.contract import Ask
from mulligan.core.job import LANES, Lane
from mulligan.core.limits import Ledger
from mulligan.core.ring import NEWEST, SPARE_GROUPS, Place, Round, Stretches, bounds_of, heads_of, is_short, whole_round
from mulligan.stores.memory_index import Groups, Index
from mulligan.stores.memory_limits import Limits


class Listing(NamedTuple):
    """The lines of each ask, and how their groups were gone round."""

    lines: list[list[Line]]
    rounds: list[list[Round]]


class Lines:
    """Chooses from the lines in the index; remembers the stretches of tenants with many groups."""

    def __init__(self, index: Index, limits: Limits) -> None:
        self._index = index
        self._limits = limits
        self._stretches = Stretches()

    def choose(self, asks: Sequence[Ask], queues: set[str], total: int, now_us: int) -> tuple[Choice, Ledger, tuple[str, ...]]:
        """The jobs to take from these queues, what the limits allow before that, and where the asks go on."""
        listing, choice, ledger = self._look(asks, queues, total, now_us, wide=False)
        if is_short(total, len(choice.jobs), chain(*listing.rounds)):
            listing, choice, ledger = self._look(asks, queues, total, now_us, wide=True)
        lines = listing.lines
        if wanted := used_up(total, lines, choice):
            lines = with_longer(lines, self._longer(asks, wanted, now_us, total))
            choice = choose(total, asks, lines, ledger)
        turns = turns_of(asks, lines, choice)
        self._stretches.learn(listing.rounds, turns)
        return choice, ledger, tuple(turn.after for turn in turns) if has_groups(lines) else ()

    def _look(self, asks: Sequence[Ask], queues: set[str], total: int, now_us: int, *, wide: bool) -> tuple[Listing, Choice, Ledger]:
        listing = Listing([[] for _ in asks], [[] for _ in asks])
        for number, ask in enumerate(asks):
            for lane in (LANES if ask.lane is None else (ask.lane,)) if ask.queue in queues else ():
                self._list(ask, lane, now_us, total, listing.lines[number], listing.rounds[number], wide=wide)
        ledger = self._limits.ledger(asks, listing.lines, now_us)
        return listing, choose(total, asks, listing.lines, ledger), ledger

    def _list(self, ask: Ask, lane: Lane, now_us: int, limit: int, lines: list[Line], rounds: list[Round], *, wide: bool) -> None:
        """Adds the lines of one lane: the jobs without a group, then its groups in their turn."""
        place = (ask.queue, lane, ask.priority)
        lines.append(Line(lane, None, self._index.without_group(place, ask.order, now_us, limit)))
        groups = self._index.groups(place)
        if groups is not None:
            round_ = self._go_round(groups, place, ask.after, now_us, limit, wide=wide)
            heads = heads_of(limit, len(round_.due))
            rounds.append(round_)
            lines += [_line(groups, lane, group, ask, now_us, heads) for group in round_.due]
            lines += round_.marks()

    def _go_round(self, groups: Groups, place: Place, after: str, now_us: int, limit: int, *, wide: bool) -> Round:
        round_ = Round(place, bounds_of(limit, wide=wide))
        oldest = groups.oldest(now_us, limit + SPARE_GROUPS + 1)
        if len(oldest) <= limit + SPARE_GROUPS:
            round_.list_all(oldest)
            return round_
        for stretch in round_.walk(groups.walk(whole_round(after), round_.bounds, now_us), self._stretches):
            round_.stretch(stretch.tenant, groups.walk(stretch.arc, stretch.bounds, now_us))
        if round_.is_sparse:
            round_.list_also(oldest)
        if wide and round_.is_cut:
            round_.list_also(groups.newest(now_us, NEWEST))
        return round_

    def _longer(
        self, asks: Sequence[Ask], wanted: Iterable[tuple[int, Lane, str]], now_us: int, limit: int
    ) -> dict[tuple[int, Lane, str], Line]:
        """More jobs of some groups, given by ask, lane and group."""
        found = {}
        for number, lane, group in wanted:
            ask = asks[number]
            groups = self._index.groups((ask.queue, lane, ask.priority))
            if groups is not None:
                found[number, lane, group] = _line(groups, lane, group, ask, now_us, limit)
        return found


def _line(groups: Groups, lane: Lane, group: str, ask: Ask, now_us: int, heads: int) -> Line:
    jobs = groups.heads(group, ask.order, now_us, heads)
    return Line(lane, group, jobs, is_cut=len(jobs) == heads)
