"""Chart: a line chart as SVG, in a few lines of our own. Readable on a light and on a dark page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 760, 380
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 64, 52
TICKS = 6  # about so many on each axis
# Both sets stand out from their background and from each other, also for the colour-blind; lines differ by dashes too.
LIGHT = ("#0b62a8", "#c2410c", "#15803d", "#7e22ce", "#525252")
DARK = ("#6cb6ff", "#ff9d5c", "#5fd38a", "#d0a2ff", "#c0c0c0")
DASHES = ("", "7 3", "2 3", "10 3 2 3", "4 4")

Point = tuple[float, float]


class Band(NamedTuple):
    """A stretch of the x axis with a name."""

    start: float
    end: float
    name: str


class Chart:
    """Lines over one x axis. With `log`, the y axis counts in powers of ten, and what lies below `floor` is drawn there."""

    def __init__(self, title: str, x_label: str, y_label: str, *, log: bool = False, floor: float = 0.001) -> None:
        self.title, self.x_label, self.y_label = title, x_label, y_label
        self._log, self._floor = log, floor
        self._lines: list[tuple[str, list[Point]]] = []
        self._bands: list[Band] = []

    def line(self, name: str, points: Iterable[Point]) -> Chart:
        """Adds a line; at most as many as there are colours."""
        if len(self._lines) == len(LIGHT):
            raise ValueError(f"a chart holds {len(LIGHT)} lines, not more: nobody could tell them apart")
        self._lines.append((name, list(points)))
        return self

    def band(self, start: float, end: float, name: str) -> Chart:
        """Shades a stretch of the x axis."""
        self._bands.append(Band(start, end, name))
        return self

    def svg(self) -> str:
        """The picture."""
        xs = [x for _, points in self._lines for x, _ in points] or [0.0, 1.0]
        ys = [y for _, points in self._lines for _, y in points] or [0.0, 1.0]
        x_axis = _Axis(_steps(min(xs), max(xs)), LEFT, WIDTH - RIGHT, high=max(xs))
        y_ticks = _powers(self._floor, max(ys)) if self._log else _steps(0.0, max(ys))
        y_axis = _Axis(y_ticks, HEIGHT - BOTTOM, TOP, log=self._log)
        parts = [*self._head(), *self._shades(x_axis), *_grid(x_axis, y_axis), *self._labels()]
        for number, (_, points) in enumerate(self._lines):
            path = " ".join(f"{x_axis.place(x):.1f},{y_axis.place(y):.1f}" for x, y in points)
            parts.append(f'<polyline class="line c{number}" points="{path}"/>')
        return "\n".join([*parts, *self._legend(), "</svg>", ""])

    def _head(self) -> list[str]:
        told = f"{self.title}. Lines: {', '.join(name for name, _ in self._lines)}."
        return [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
            f"<title>{escape(self.title)}</title>",
            f"<desc>{escape(told)}</desc>",
            f"<style>{_style()}</style>",
            f'<rect class="page" width="{WIDTH}" height="{HEIGHT}" rx="6"/>',
            f'<text class="title" x="{LEFT}" y="22">{escape(self.title)}</text>',
        ]

    def _labels(self) -> list[str]:
        middle = (TOP + HEIGHT - BOTTOM) / 2
        return [
            f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 12}" text-anchor="middle">{escape(self.x_label)}</text>',
            f'<text x="16" y="{middle:.0f}" text-anchor="middle" transform="rotate(-90 16 {middle:.0f})">{escape(self.y_label)}</text>',
        ]

    def _shades(self, x_axis: _Axis) -> list[str]:
        parts = []
        for band in self._bands:
            start, end = x_axis.place(band.start), x_axis.place(band.end)
            parts.append(f'<rect class="band" x="{start:.1f}" y="{TOP}" width="{end - start:.1f}" height="{HEIGHT - TOP - BOTTOM}"/>')
            parts.append(f'<text class="small" x="{(start + end) / 2:.1f}" y="{TOP + 14}" text-anchor="middle">{escape(band.name)}</text>')
        return parts

    def _legend(self) -> list[str]:
        parts, x = [], float(LEFT)
        for number, (name, _) in enumerate(self._lines):
            parts.append(f'<line class="line c{number}" x1="{x:.0f}" y1="44" x2="{x + 26:.0f}" y2="44"/>')
            parts.append(f'<text class="small" x="{x + 32:.0f}" y="48">{escape(name)}</text>')
            x += 48 + 6.6 * len(name)
        return parts


class _Axis:
    """From values to places. It begins at its first tick, and ends at its last, or at `high`."""

    def __init__(self, ticks: Sequence[float], start: float, end: float, *, high: float | None = None, log: bool = False) -> None:
        self._high = ticks[-1] if high is None else max(high, ticks[1])
        self.ticks = [tick for tick in ticks if tick <= self._high]
        self._start, self._end, self._log = start, end, log

    def place(self, value: float) -> float:
        low, high = self._scaled(self.ticks[0]), self._scaled(self._high)
        share = (self._scaled(value) - low) / (high - low)
        return self._start + min(max(share, 0.0), 1.0) * (self._end - self._start)

    def _scaled(self, value: float) -> float:
        return math.log10(max(value, self.ticks[0])) if self._log else value


def _steps(low: float, high: float) -> list[float]:
    """Round values from at most `low` to at least `high`, evenly."""
    wanted = max(high - low, 1e-9) / TICKS
    power = 10.0 ** math.floor(math.log10(wanted))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= wanted)
    first = math.floor(low / step)
    return [step * number for number in range(first, max(math.ceil(high / step), first + 1) + 1)]


def _powers(low: float, high: float) -> list[float]:
    """Powers of ten from at most `low` to at least `high`."""
    first = math.floor(math.log10(low))
    return [10.0**power for power in range(first, max(math.ceil(math.log10(max(high, low))), first + 1) + 1)]


def _grid(x_axis: _Axis, y_axis: _Axis) -> list[str]:
    parts = []
    for tick in y_axis.ticks:
        y = y_axis.place(tick)
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>')
        parts.append(f'<text class="small" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tick:,.6g}</text>')
    for tick in x_axis.ticks:
        x = x_axis.place(tick)
        parts.append(f'<line class="grid" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}"/>')
        parts.append(f'<text class="small" x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{tick:,.6g}</text>')
    return parts


def _style() -> str:
    """The colours, of which a dark page gets its own."""

    def colours(names: Sequence[str]) -> str:
        return "".join(f".c{number}{{stroke:{name}}}" for number, name in enumerate(names))

    dashes = "".join(f".c{number}{{stroke-dasharray:{dash}}}" for number, dash in enumerate(DASHES) if dash)
    return (
        "text{font:13px system-ui,sans-serif;fill:#24292f}.title{font-weight:600;font-size:15px}.small{font-size:12px}"
        ".page{fill:#ffffff;stroke:#d0d7de}.grid{stroke:#8c959f;stroke-opacity:.3}.band{fill:#8c959f;fill-opacity:.18}"
        f".line{{fill:none;stroke-width:1.8}}{colours(LIGHT)}{dashes}"
        "@media (prefers-color-scheme:dark){text{fill:#e6edf3}.page{fill:#0d1117;stroke:#30363d}" + colours(DARK) + "}"
    )
