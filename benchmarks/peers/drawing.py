"""Drawing: bars and ranges as SVG, in panels one below the other. The same values give the same bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr

WIDTH = 760
EDGE, TOP = 20, 44
ROW, THICK = 24, 14
PANEL_HEAD, PANEL_FOOT, NOTE = 28, 34, 18
SIGN = 6.8  # the width of a sign of small text, roughly
TICKS = 5  # about so many on an axis
WHISKER_MIN = 4.0  # narrower ones would be a blot; the label tells the spread in any case
# A bare loop far above everybody would press the others against the edge. Beyond so many times the highest of them its bar is cut,
# and says so.
CUT = 3.0

HATCH = (
    '<pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<line class="hatch" x1="0" y1="0" x2="0" y2="6"/></pattern>'
)
# Each stands out from the page of its own set: a test looks at the contrast.
LIGHT = {"page": "#ffffff", "text": "#24292f", "ours": "#0b62a8", "peer": "#7d8590", "loop": "#9a5b13"}
DARK = {"page": "#0d1117", "text": "#e6edf3", "ours": "#6cb6ff", "peer": "#7d8590", "loop": "#d9a05b"}


class Mark(NamedTuple):
    """One row of a panel: a bar to `middle` with whiskers, or a range from `low` to `high`."""

    name: str
    look: str  # ours, peer or loop
    low: float
    middle: float
    high: float
    label: str


class Panel(NamedTuple):
    """Rows that share a scale."""

    title: str
    marks: Sequence[Mark]


class Axis:
    """From values to places between two edges; it begins at its first tick and ends at its last."""

    def __init__(self, ticks: Sequence[float], start: float, end: float, *, log: bool = False) -> None:
        self.ticks, self.start, self.end = ticks, start, end
        self._scaled = math.log10 if log else float

    def place(self, value: float) -> float:
        """Where a value is; what lies outside is put at the edge."""
        first, last = self.ticks[0], self.ticks[-1]
        low, high = self._scaled(first), self._scaled(last)
        share = (self._scaled(min(max(value, first), last)) - low) / (high - low)
        return self.start + share * (self.end - self.start)


def bars(title: str, unit: str, panels: Sequence[Panel], notes: Sequence[str] = ()) -> str:
    """Bars from zero, each panel with a scale of its own."""
    left, right = _edges(panels, unit)
    parts, y = _head(title, panels, notes, marked="bars"), float(TOP)
    for panel in panels:
        axis = Axis(steps(_highest(panel)), left, right)
        parts += _frame(panel, axis, y, unit)
        for row, mark in enumerate(panel.marks):
            parts += _bar(mark, axis, y + PANEL_HEAD + row * ROW)
        y += _height(panel)
    return _closed(parts, notes, y)


def ranges(title: str, unit: str, panels: Sequence[Panel], notes: Sequence[str] = ()) -> str:
    """Ranges on one scale of powers of ten, the same in each panel; a dot at the lower end, a stroke at the upper one."""
    left, right = _edges(panels, unit)
    ends = [end for panel in panels for mark in panel.marks for end in (mark.low, mark.high)]
    axis = Axis(decades(min(ends), max(ends)), left, right, log=True)
    parts, y = _head(title, panels, notes, marked="ranges"), float(TOP)
    for panel in panels:
        parts += _frame(panel, axis, y, unit)
        for row, mark in enumerate(panel.marks):
            parts += _range(mark, axis, y + PANEL_HEAD + row * ROW)
        y += _height(panel)
    return _closed(parts, notes, y)


def steps(high: float) -> list[float]:
    """Round values from nothing to at least `high`, evenly."""
    wanted = max(high, 1e-9) / TICKS
    power = 10.0 ** math.floor(math.log10(wanted))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= wanted)
    return [step * number for number in range(max(math.ceil(high / step - 1e-9), 1) + 1)]


def decades(low: float, high: float) -> list[float]:
    """1, 2, 5, 10, 20 ... from at most `low` to at least `high`."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    every = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
    below = [one for one in every if one <= low * (1 + 1e-9)]
    above = [one for one in every if one >= high * (1 - 1e-9)]
    first, last = below[-1], above[0]
    return [one for one in every if first <= one <= last] if first < last else [first, 10 * first]


def _highest(panel: Panel) -> float:
    """Where the scale has to reach: everybody, and those loops that are not too far away."""
    rivals = max((mark.high for mark in panel.marks if mark.look != "loop"), default=0.0)
    return max((mark.high for mark in panel.marks if not rivals or mark.middle <= CUT * rivals), default=rivals)


def _edges(panels: Sequence[Panel], unit: str) -> tuple[float, float]:
    """Where the scales begin and end, so that names, labels and the unit behind the last tick have room."""
    marks = [mark for panel in panels for mark in panel.marks]
    names, labels = max(len(mark.name) for mark in marks), max(len(mark.label) for mark in marks)
    room = max(SIGN * labels + 8, SIGN * len(unit) + 34)
    return round(EDGE + SIGN * 1.1 * names + 10, 1), round(WIDTH - EDGE - room, 1)


def _height(panel: Panel) -> float:
    return PANEL_HEAD + ROW * len(panel.marks) + PANEL_FOOT


def _head(title: str, panels: Sequence[Panel], notes: Sequence[str], *, marked: str) -> list[str]:
    height = round(TOP + sum(map(_height, panels)) + NOTE * len(notes) + 6)
    told = [f"{panel.title}: {', '.join(f'{mark.name} {mark.label}' for mark in panel.marks)}" for panel in panels]
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="title desc">',
        f'<title id="title">{escape(title)}</title>',
        f'<desc id="desc">{escape(f"Horizontal {marked}. " + ". ".join(told) + ".")}</desc>',
        f"<style>{_style()}</style>",
        f"<defs>{HATCH}</defs>",
        f'<rect class="page" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="6"/>',
        f'<text class="title" x="{EDGE}" y="28">{escape(title)}</text>',
    ]


def _frame(panel: Panel, axis: Axis, y: float, unit: str) -> list[str]:
    """The name of a panel, its grid, the ticks and the unit."""
    top, bottom = y + PANEL_HEAD - 4, y + PANEL_HEAD + ROW * len(panel.marks) + 2
    parts = [f'<text class="panel" x="{EDGE}" y="{y + 16:.1f}">{escape(panel.title)}</text>']
    for tick in axis.ticks:
        x = axis.place(tick)
        parts.append(f'<line class="grid" x1="{x:.1f}" y1="{top:.1f}" x2="{x:.1f}" y2="{bottom:.1f}"/>')
        parts.append(f'<text class="tick" x="{x:.1f}" y="{bottom + 14:.1f}" text-anchor="middle">{tick:,.6g}</text>')
    after = axis.end + 3.5 * len(f"{axis.ticks[-1]:,.6g}") + 8
    parts.append(f'<text class="tick" x="{after:.1f}" y="{bottom + 14:.1f}">{escape(unit)}</text>')
    return parts


def _named(mark: Mark, axis: Axis, y: float) -> str:
    look = "name ours" if mark.look == "ours" else "name"
    return f'<text class="{look}" x="{axis.start - 8:.1f}" y="{y + 13:.1f}" text-anchor="end">{escape(mark.name)}</text>'


def _bar(mark: Mark, axis: Axis, y: float) -> list[str]:
    """A row of a panel with bars: name, bar, whiskers, label."""
    end, top, middle = axis.place(mark.middle), y + (ROW - THICK) / 2 - 3, y + ROW / 2 - 3
    place = f'x="{axis.start:.1f}" y="{top:.1f}" width="{end - axis.start:.2f}" height="{THICK}"'
    parts = [_named(mark, axis, y), f'<rect class="bar {mark.look}" data-name={quoteattr(mark.name)} {place}/>']
    if mark.middle > axis.ticks[-1]:
        x = axis.end - 26
        parts.append(f'<path class="cut" d="M{x:.1f} {top + THICK + 2:.1f}L{x + 8:.1f} {top - 2:.1f}"/>')
        return [*parts, _label(mark.label, axis.end + 8, middle)]
    low, high = axis.place(mark.low), axis.place(mark.high)
    if high - low > WHISKER_MIN:
        path = f"M{low:.1f} {middle - 4:.1f}v8M{low:.1f} {middle:.1f}H{high:.1f}M{high:.1f} {middle - 4:.1f}v8"
        parts += [f'<path class="halo" d="{path}"/>', f'<path class="whisker" d="{path}"/>']
    return [*parts, _label(mark.label, max(end, high) + 8, middle)]


def _range(mark: Mark, axis: Axis, y: float) -> list[str]:
    """A row of a panel with ranges: name, line from the median to the tail, label."""
    low, high, middle = axis.place(mark.low), axis.place(mark.high), y + ROW / 2 - 3
    named = quoteattr(mark.name)
    return [
        _named(mark, axis, y),
        f'<line class="range {mark.look}" data-name={named} x1="{low:.2f}" y1="{middle:.1f}" x2="{high:.2f}" y2="{middle:.1f}"/>',
        f'<line class="end {mark.look}" x1="{high:.2f}" y1="{middle - 6:.1f}" x2="{high:.2f}" y2="{middle + 6:.1f}"/>',
        f'<circle class="dot {mark.look}" cx="{low:.2f}" cy="{middle:.1f}" r="5"/>',
        _label(mark.label, high + 9, middle),
    ]


def _label(text: str, x: float, middle: float) -> str:
    return f'<text class="label" x="{x:.1f}" y="{middle + 4:.1f}">{escape(text)}</text>'


def _closed(parts: list[str], notes: Sequence[str], y: float) -> str:
    told = [f'<text class="tick" x="{EDGE}" y="{y + NOTE * number + 8:.1f}">{escape(note)}</text>' for number, note in enumerate(notes)]
    return "\n".join([*parts, *told, "</svg>", ""])


def _style() -> str:
    """Forms, then the colours, of which a dark page gets its own."""

    def colours(of: dict[str, str]) -> str:
        looks = "".join(
            f".bar.{look},.dot.{look}{{fill:{of[look]}}}.range.{look},.end.{look}{{stroke:{of[look]}}}" for look in ("ours", "peer", "loop")
        )
        return (
            f"text{{fill:{of['text']}}}.page{{fill:{of['page']}}}.name.ours{{fill:{of['ours']}}}{looks}.whisker{{stroke:{of['text']}}}"
            f".halo,.cut,.label{{stroke:{of['page']}}}.hatch{{stroke:{of['loop']}}}.bar.loop{{fill:url(#hatch);stroke:{of['loop']}}}"
        )

    return (
        "text{font:12px system-ui,sans-serif}.title{font-size:16px;font-weight:600}.panel{font-size:13px;font-weight:600}"
        ".tick{font-size:11px}.name.ours{font-weight:600}.page{stroke:#8c959f;stroke-opacity:.4}.grid{stroke:#8c959f;stroke-opacity:.3}"
        ".whisker,.halo,.cut,.range,.end{fill:none}.whisker{stroke-width:1.3}.halo{stroke-width:3.6}.cut{stroke-width:5}"
        ".label{paint-order:stroke;stroke-width:3}.range{stroke-width:4}.end{stroke-width:2.5}.hatch{stroke-width:3}"
        f"{colours(LIGHT)}@media (prefers-color-scheme:dark){{{colours(DARK)}}}"
    )
