"""The results as text: a table for each store, and how far mulligan is ahead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.peers.figures import FIGURES, Summary, ratio
from benchmarks.peers.roster import PEERS

Summaries = Mapping[str, Mapping[str, Summary]]  # by peer and figure


def shown(value: float) -> str:
    """A number in as few signs as it needs."""
    if value == int(value) and abs(value) < 1_000:
        return f"{value:.0f}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def with_spread(summary: Summary) -> str:
    """The median, and how far the rounds lie apart where there were several."""
    return shown(summary.median) + (f" ±{summary.spread / 2:.0%}" if summary.high > summary.low and summary.median else "")


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Rows of words, the first column to the left and all others to the right."""
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    lines = []
    for row in rows:
        first, *others = (
            word.ljust(width) if not index else word.rjust(width) for index, (word, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join([first, *others]).rstrip())
    return "\n".join(lines)


def label(name: str) -> str:
    """The name of a contender, with a word on those that are no queue."""
    words = {"limit": " (the limit)", "naive": " (no batches)"}
    return name + words.get(PEERS[name].role, "")


def figures_table(summaries: Summaries, peers: Sequence[str], shown_names: Sequence[str] = tuple(FIGURES)) -> str:
    """What was measured, a line for each peer that has any of it; only columns in which there is something. Empty without any."""
    names = [name for name in shown_names if any(name in summaries[peer] for peer in peers)]
    rows = [["", *(FIGURES[name].short for name in names)]]
    for peer in peers:
        if any(name in summaries[peer] for name in names):
            rows.append([label(peer), *(with_spread(summaries[peer][name]) if name in summaries[peer] else "-" for name in names)])
    return columns(rows) if names else ""


def ratio_table(summaries: Summaries, ours: str, peers: Sequence[str]) -> str:
    """How far mulligan is ahead of each peer: more than 1 is ahead, whatever the figure; empty if there is nothing to compare."""
    others = [peer for peer in peers if peer != ours]
    if ours not in peers or not others:
        return ""
    names = [name for name, kind in FIGURES.items() if kind.more_is_better is not None and name in summaries[ours]]
    rows = [[f"{ours} beside", *(FIGURES[name].short for name in names)]]
    for peer in others:
        found = [
            ratio(name, summaries[ours][name].median, summaries[peer][name].median) if name in summaries[peer] else None for name in names
        ]
        rows.append([label(peer), *("-" if one is None else f"{one:.2f}x" for one in found)])
    return columns(rows)
