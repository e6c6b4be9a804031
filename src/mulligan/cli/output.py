"""Everything a command prints goes through here, so that no text from outside can play with the terminal.

People get lines and tables, with colour on a terminal only (and never where NO_COLOR is set). Programs get JSON, in ASCII.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
import msgspec

from mulligan.core.codec import storable_text

if TYPE_CHECKING:
    from rich.console import Console

TEXT_CHARS_MAX = 10_000
CELL_CHARS_MAX = 300
Cell = str | int | float | None | tuple[object, str]  # a value, or a value and its style


def clean(text: object, chars_max: int = TEXT_CHARS_MAX) -> str:
    """Text from outside as one line without control characters: they are shown by their escapes, as in \\x1b."""
    kept = storable_text(str(text), chars_max)
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in kept)


def say(text: object = "", *, style: str = "", err: bool = False) -> None:
    """Prints one line for a person."""
    colour = is_coloured(sys.stderr if err else sys.stdout)
    click.echo(painted(text, style, colour=colour), err=err, color=True)  # whether there is colour is decided here


def emit(document: Any) -> None:
    """Prints one JSON document, laid out for reading where a person looks."""
    click.echo(json.dumps(plain(document), indent=2 if sys.stdout.isatty() else None))


def emit_line(document: Any) -> None:
    """Prints one JSON document as one line, at once."""
    click.echo(json.dumps(plain(document)))


def plain(value: Any) -> Any:
    """The value as JSON knows it: structs become objects, times become ISO 8601."""
    return msgspec.to_builtins(value, str_keys=True)


def table(titles: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    """Prints rows under their titles; see table_lines."""
    for line in table_lines(titles, rows, colour=is_coloured(sys.stdout)):
        click.echo(line, color=True)


def table_lines(titles: Sequence[str], rows: Sequence[Sequence[Cell]], *, colour: bool) -> list[str]:
    """One line per row, in columns. ">" before a title sets its column to the right.

    Nothing is folded or cut to the width of a terminal: a program wants whole lines, and a terminal folds by itself.
    """
    cells = [[_cell(cell) for cell in row] for row in rows]
    heads = [(title.lstrip(">"), "bold") for title in titles]
    widths = [max(_width(row[place][0]) for row in [heads, *cells]) for place in range(len(titles))]
    lines = []
    for row in [heads, *cells]:
        parts = []
        for (text, style), title, width in zip(row, titles, widths, strict=True):
            blank = " " * (width - _width(text))
            shown = painted(text, style, colour=colour)
            parts.append(blank + shown if title.startswith(">") else shown + blank)
        lines.append("  ".join(parts).rstrip(" "))
    return lines


def _cell(cell: Cell) -> tuple[str, str]:
    value, style = cell if isinstance(cell, tuple) else (cell, "")
    return "" if value is None else clean(value, CELL_CHARS_MAX), style


def painted(text: object, style: str, *, colour: bool) -> str:
    """A harmless text in its style, where colour is wanted."""
    shown = clean(text)
    if not colour or not style or not shown:
        return shown
    return click.style(shown, bold=True) if style == "bold" else click.style(shown, fg=style)


def _width(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def console(*, err: bool = False) -> Console:
    """A console for what is drawn again and again. It interprets nothing it is given."""
    from rich.console import Console

    stream = sys.stderr if err else sys.stdout
    return Console(file=stream, no_color=not is_coloured(stream), markup=False, highlight=False, emoji=False)


def is_coloured(stream: Any) -> bool:
    """Whether colour is wanted there: on a terminal, unless NO_COLOR is set."""
    return bool(stream.isatty()) and not os.environ.get("NO_COLOR")


@contextmanager
def progress(total: int, label: str, *, show: bool = True) -> Iterator[Any]:
    """A progress bar on stderr where that is a terminal; yields a function that is told how much was done."""
    if not show or not sys.stderr.isatty():
        yield lambda _done: None
        return
    from rich.progress import Progress

    with Progress(console=console(err=True), transient=True) as bar:
        task = bar.add_task(clean(label), total=total)
        yield lambda done: bar.advance(task, done)
