"""The careful claim: where jobs have groups, or limits of the whole fleet have a say. Which jobs, core/choosing decides.

Everything between the look and the write happens in one transaction that holds the write lock, so nobody else takes a slot or a token
in between, and no lease that has ended comes back. A damaged job that is only found out when it is read has spent its token.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from mulligan.core.choosing import Choice, Line, choose, has_groups, needs, sooner, turns_of, used_up, with_longer
from mulligan.core.contract import Ask
from mulligan.core.limits import Ledger, matters_without_group, slots_text
from mulligan.core.ring import Stretches, is_short
from mulligan.stores.sqlite.hop import Transaction
from mulligan.stores.sqlite.limits import forget_levels, read_ledger, write_levels
from mulligan.stores.sqlite.lines import Listing, list_lines, longer_lines, unmarked_lines
from mulligan.stores.sqlite.ring import of_damaged_group
from mulligan.stores.sqlite.rows import read_text, salvage, to_json
from mulligan.stores.sqlite.taking import Taken, next_due_us, remember, take, take_under_slots


def are_limited(asks: Sequence[Ask]) -> bool:
    """Whether a limit has a say in a claim even where no job has a group."""
    return any(ask.limits and matters_without_group(ask.limits) for ask in asks)


class Queues(NamedTuple):
    """What a claim knows of queues: the paused ones, those of its asks that have jobs with groups, and, with their priorities, those that
    have marked jobs (claim.py)."""

    paused: set[str]
    grouped: set[str]
    marked: set[tuple[str, int]]


class CarefulClaim:
    """One claim, at the moment of its transaction."""

    def __init__(self, transaction: Transaction, asks: Sequence[Ask], total: int, queues: Queues, stretches: Stretches) -> None:
        self._transaction = transaction
        self._asks = asks
        self._total = total
        self._queues = queues
        self._stretches = stretches
        self._listing = self._look(wide=False)

    def claim(self, claim_id: str, owner: str, lease_us: int) -> Taken:
        """Takes what the limits admit, tenants in turn."""
        choice, ledger = self._choose()
        for damaged in self._listing.damaged:
            salvage(self._transaction, of_damaged_group(self._transaction, damaged))
        if not choice.jobs:
            return self._answer("[]", "[]", choice, ledger)
        self._take(choice, ledger, claim_id, owner, lease_us)
        if remember(self._transaction, claim_id):
            forget_levels(self._transaction)
        chosen = to_json([one.job.ref for one in choice.jobs])
        return self._answer(read_text(self._transaction, chosen), chosen, choice, ledger)

    def probe(self) -> Taken | None:
        """The answer to a claim that is empty, found without writing; None if there may be something to take."""
        # In which order the jobs of a line are listed does not matter where none of them is taken.
        unmarked = unmarked_lines(self._transaction, self._asks, self._queues.paused)
        choice, ledger = self._choose(unmarked)
        return None if choice.jobs or self._listing.damaged else self._answer("[]", "[]", choice, ledger)

    def _look(self, *, wide: bool) -> Listing:
        return list_lines(self._transaction, self._asks, *self._queues, self._total, self._stretches, wide=wide)

    def _choose(self, more: Sequence[Sequence[Line]] = ()) -> tuple[Choice, Ledger]:
        """The choice from the lines, and from more of them if there are; looks further where that was too little."""
        choice, ledger = self._chosen(more)
        if is_short(self._total, len(choice.jobs), chain(*self._listing.rounds)):
            damaged = self._listing.damaged
            self._listing = self._look(wide=True)
            self._listing.damaged.update(damaged)
            choice, ledger = self._chosen(more)
        if wanted := used_up(self._total, self._listing.lines, choice):
            longer = longer_lines(self._transaction, self._asks, wanted, self._total)
            self._listing = self._listing._replace(lines=with_longer(self._listing.lines, longer))
            choice, ledger = self._chosen(more)
        return choice, ledger

    def _chosen(self, more: Sequence[Sequence[Line]]) -> tuple[Choice, Ledger]:
        lines = [[*own, *others] for own, others in zip(self._listing.lines, more, strict=True)] if more else self._listing.lines
        ledger = read_ledger(self._transaction, *needs(self._asks, lines))
        return choose(self._total, self._asks, lines, ledger), ledger

    def _take(self, choice: Choice, ledger: Ledger, claim_id: str, owner: str, lease_us: int) -> None:
        chosen: list[tuple[int, str | None]] = []
        for one in choice.jobs:
            ask, lane, group = self._asks[one.ask], one.line.lane, one.line.group
            ledger.charge(ask.queue, lane, group, ask.limits)
            chosen.append((one.job.ref, slots_text(ask.limits, lane, group)))
        if any(slots is not None for _, slots in chosen):
            take_under_slots(self._transaction, claim_id, owner, lease_us, chosen)
        else:
            take(self._transaction, claim_id, owner, lease_us, to_json([seq for seq, _ in chosen]))
        write_levels(self._transaction, ledger.writes())

    def _answer(self, text: str | None, chosen: str, choice: Choice, ledger: Ledger) -> Taken:
        now_us = self._transaction.now_us
        next_us = None
        if len(choice.jobs) < self._total:
            due_us = next_due_us(self._transaction, self._asks, self._queues.paused, self._queues.grouped)
            next_us = sooner([due_us], choice, now_us)
        turns = turns_of(self._asks, self._listing.lines, choice)
        self._stretches.learn(self._listing.rounds, turns)
        return Taken(
            text,
            chosen,
            now_us,
            next_us,
            is_empty=not choice.jobs,
            held_back=choice.held_back,
            turns=tuple(turn.after for turn in turns) if has_groups(self._listing.lines) else (),
            levels=ledger.levels(),
        )
