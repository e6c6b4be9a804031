"""The results as Markdown: the figures and ratios of each store, and what became of the targets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.peers.figures import FIGURES, GROUPS, ratio
from benchmarks.peers.found import Contender, Found
from benchmarks.peers.table import shown, with_spread
from benchmarks.peers.targets import Verdict, verdicts

NOTHING = "-"
ROLES = {"limit": " (the limit)", "naive": " (no batches)"}


class Judgement(NamedTuple):
    """A verdict on the medians, and what the single rounds would have said."""

    verdict: Verdict
    rounds: list[bool]

    @property
    def words(self) -> str:
        """Reached or missed, and in how many rounds it was the other way."""
        is_fine = self.verdict.is_fine
        told, other = ("reached", "missed") if is_fine else ("**missed**", "reached")
        count = sum(one != is_fine for one in self.rounds)
        return f"{told}, {other} in {count} of {len(self.rounds)} rounds" if count and len(self.rounds) > 1 else told


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table, the first column to the left and all others to the right."""
    lines = [head, ["---", *(["---:"] * (len(head) - 1))], *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)


def figures_tables(contenders: Sequence[Contender]) -> list[str]:
    """Medians and spread, a table for each group of figures: a line for each contender, and a column for each figure that somebody has."""
    made = []
    for group in GROUPS:
        names = [name for name in group if any(name in one.rounds for one in contenders)]
        rows = []
        for one in contenders:
            figures = one.figures
            if any(name in figures for name in names):
                rows.append([who(one), *(with_spread(figures[name]) if name in figures else NOTHING for name in names)])
        if rows:
            made.append(table(["", *(FIGURES[name].short for name in names)], rows))
    return made


def ratio_table(contenders: Sequence[Contender]) -> str:
    """How far mulligan is ahead of each of the others; empty if there is nothing to compare."""
    ours = next((one for one in contenders if one.is_ours), None)
    others = [one for one in contenders if not one.is_ours]
    if ours is None:
        return ""
    found: dict[str, dict[str, float]] = {}
    for one in others:
        for name in one.rounds:
            if name in ours.rounds and (times := ratio(name, ours.figures[name].median, one.figures[name].median)) is not None:
                found.setdefault(name, {})[one.name] = times
    names = [name for name in FIGURES if name in found]
    if not names:
        return ""
    rows = [[who(one), *(f"{found[name][one.name]:.2f}x" if one.name in found[name] else NOTHING for name in names)] for one in others]
    return table([f"{ours.name} beside", *(FIGURES[name].short for name in names)], rows)


def columns_list(contenders: Sequence[Contender]) -> str:
    """What the columns of the tables mean."""
    names = [name for name in FIGURES if any(name in one.rounds for one in contenders)]
    return "\n".join(f"- `{FIGURES[name].short}`: {FIGURES[name].words}" for name in names)


def judged(found: Found) -> list[Judgement]:
    """Every target that the run can tell something about; asked once for the medians, and once for each round by itself."""
    rounds = [{_target(one): one.is_fine for one in verdicts(found.summaries(number))} for number in range(found.round_count)]
    return [Judgement(one, [each[_target(one)] for each in rounds if _target(one) in each]) for one in verdicts(found.summaries())]


def targets_table(judgements: Sequence[Judgement]) -> str:
    """A line for each target, the missed ones in bold."""
    rows = []
    for one in judgements:
        verdict = one.verdict
        spread = f"{shown(verdict.low)} to {shown(verdict.high)}{verdict.unit}" if verdict.high > verdict.low else NOTHING
        # A near miss must not look like a hit: 0.399 is not 0.40.
        found = (shown(verdict.reached) if verdict.is_fine else f"{verdict.reached:,.4g}") + verdict.unit
        rows.append([f"{verdict.name}, {FIGURES[verdict.figure].short}: {verdict.wanted}", found, spread, one.words])
    return table(["target", "found", "at worst, at best", ""], rows)


def who(one: Contender) -> str:
    """The name of a contender: mulligan in bold, with a word on those that are no queue."""
    name = f"{one.name} {one.version}".rstrip()
    return f"**{name}**" if one.is_ours else f"*{name}*{ROLES[one.role]}" if one.role in ROLES else name


def _target(verdict: Verdict) -> tuple[str, str, str]:
    """The same in each round, also where the best peer, in brackets at the end, is another one."""
    return verdict.name, verdict.figure, re.sub(r" \([^()]*\)$", "", verdict.wanted)
