"""Plots: which pictures a result file gives, read from the list of figures: a rate becomes bars, a median with its tail ranges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.peers.drawing import CUT, Mark, Panel, bars, ranges
from benchmarks.peers.figures import FIGURES
from benchmarks.peers.found import WORDS, Contender, Found
from benchmarks.peers.roster import OURS_TOO
from benchmarks.peers.table import shown, with_spread

RATE, MEDIAN, TAIL = "_per_s", "_p50_ms", "_p99_ms"
FIRST = "drain"  # what most readers come for
STORM = "storm"
# Where the words of a figure lean on those of another one.
TITLES = {"loaded_p50_ms": "Pick-up by a worker that gets half of what it can take"}


class Plot(NamedTuple):
    """One picture."""

    file: str
    title: str
    svg: str


def plots(found: Found) -> list[Plot]:
    """Every picture there is something to draw for."""
    made = []
    for figure, kind in FIGURES.items():
        if figure.endswith(RATE) and kind.more_is_better:
            made.append(_rates(found, figure))
        elif figure.endswith(MEDIAN) and figure.replace(MEDIAN, TAIL) in FIGURES:
            made.append(_waits(found, figure))
    return sorted((plot for plot in made if plot is not None), key=lambda plot: plot.file != f"{FIRST}.svg")


def _rates(found: Found, figure: str) -> Plot | None:
    panels, notes = [], []
    for store in found.stores:
        measured = [one for one in found.on(store) if figure in one.rounds]
        if len(measured) < 2:
            continue  # a single bar on a scale of its own tells nothing
        measured.sort(key=lambda one: (one.is_loop, -one.figures[figure].median, one.name))
        panels.append(Panel(WORDS.get(store, store), [_bar(one, figure) for one in measured]))
    if not panels:
        return None
    everybody = [mark for panel in panels for mark in panel.marks]
    if any(mark.name.endswith("*") for mark in everybody):
        notes.append("* cannot try again at once; the pauses in which it begins nothing are left out")
    if any(mark.look == "loop" for mark in everybody):
        notes.append(f"hatched: a bare loop on the store, no queue; cut where it is more than {CUT:g} times as fast as the fastest queue")
    notes.append("medians of the rounds, lines from the slowest to the fastest; every store has a scale of its own")
    title, unit = _words(figure)
    return Plot(f"{figure.removesuffix(RATE)}.svg", title, bars(title, unit, panels, notes))


def _bar(one: Contender, figure: str) -> Mark:
    summary = one.figures[figure]
    star = " *" if one.waits and figure == STORM + RATE else ""
    return Mark(one.name + star, _look(one), summary.low, summary.median, summary.high, with_spread(summary))


def _waits(found: Found, figure: str) -> Plot | None:
    tail = figure.replace(MEDIAN, TAIL)
    panels = []
    for store in found.stores:
        # A logarithm has no place for nothing; a clock does not give it either.
        measured = [one for one in found.on(store) if tail in one.rounds and figure in one.rounds and one.figures[figure].median > 0]
        measured.sort(key=lambda one: (one.is_loop, one.figures[figure].median, one.name))
        if measured:
            panels.append(Panel(WORDS.get(store, store), [_range(one, figure, tail) for one in measured]))
    if not panels:
        return None
    title = TITLES.get(figure) or _words(figure)[0].rpartition(", ")[0]
    note = "dot: median, stroke: 99 of 100, both as medians of the rounds; one scale for all, by powers of ten"
    return Plot(f"{figure.removesuffix(MEDIAN)}.svg", title, ranges(title, "ms", panels, [note]))


def _range(one: Contender, figure: str, tail: str) -> Mark:
    low, high = one.figures[figure].median, one.figures[tail].median
    return Mark(one.name, _look(one), low, low, max(low, high), f"{shown(low)} to {shown(high)}")


def _look(one: Contender) -> str:
    return "loop" if one.is_loop else "ours" if one.role in ("ours", *OURS_TOO) else "peer"


def _words(figure: str) -> Sequence[str]:
    """Title and unit, from what the list of figures says."""
    title, _, unit = FIGURES[figure].words.rpartition(", ")
    return title[:1].upper() + title[1:], unit
