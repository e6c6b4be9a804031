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
    from rich.console import Console, RenderableType

TEXT_CHARS_MAX = 10_000
CELL_CHARS_MAX = 300
Cell = str | int | float | None | tuple[object, str]  # a value, or a value and its style


def clean(text: object, chars_max: int = TEXT_CHARS_MAX) -> str:
    """Text from outside as one line without control characters: they are shown by their escapes, as in \\x1b."""
    kept = storable_text(str(text), chars_max)
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in kept)


def say(text: object = "", *, style: str | None = None, err: bool = False) -> None:
    """Prints one line for a person."""
    color = None if _colour(sys.stderr if err else sys.stdout) else False
    shown = clean(text)
    click.echo(click.style(shown, fg=style) if style else shown, err=err, color=color)


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
    """Prints rows under their titles; a column whose title begins with ">" is set to the right."""
    console().print(make_table(titles, rows))


def make_table(titles: Sequence[str], rows: Sequence[Sequence[Cell]]) -> RenderableType:
    """The table itself, for what prints by other means."""
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, header_style="bold")
    for title in titles:
        made.add_column(title.lstrip(">"), justify="right" if title.startswith(">") else "left", overflow="fold")
    for row in rows:
        made.add_row(*(_cell(cell, Text) for cell in row))
    return made


def _cell(cell: Cell, text: Any) -> Any:
    value, style = cell if isinstance(cell, tuple) else (cell, "")
    return text("" if value is None else clean(value, CELL_CHARS_MAX), style=style)


def console(*, err: bool = False) -> Console:
    """A console that interprets nothing it is given. Away from a terminal it is as wide as needed: programs cut lines themselves."""
    from rich.console import Console

    stream = sys.stderr if err else sys.stdout
    terminal = stream.isatty()
    return Console(
        file=stream,
        force_terminal=terminal,
        no_color=not _colour(stream),
        width=None if terminal else 10_000,
        markup=False,
        highlight=False,
        emoji=False,
        soft_wrap=False,
    )


def _colour(stream: Any) -> bool:
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
