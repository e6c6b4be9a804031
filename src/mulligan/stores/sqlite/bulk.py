"""Many rows in few statements.

The driver gives up the interpreter's lock at every step of a statement, and on a busy event loop it can take milliseconds to get it
back. So rows are written by statements that carry many of them. Their sizes are few, so that each is prepared once and then reused;
what a statement carries too much is filled with rows that have NULL in their first column, which the statements ignore.

None is dear. The driver asks its adapters about every value that is no number and no text, which takes it ten times as long as to bind
one. So the filling has no more of it than it needs, and statements that are on the way of every job take none in their rows either.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

Params = Sequence[Any]

SIZES = (512, 128, 32, 8, 2, 1)
ROWS = "(:rows:)"  # where a statement's template has its rows


@lru_cache(maxsize=256)
def with_rows(template: str, columns: int, size: int) -> str:
    """The statement for so many rows of so many columns. The same object each time, so that the driver finds it prepared."""
    row = f"({','.join('?' * columns)})"
    return template.replace(ROWS, f"(VALUES {','.join([row] * size)})")


def portions(template: str, columns: int, rows: Sequence[Params], before: Params = ()) -> Iterator[tuple[str, list[Any]]]:
    """Statements and their parameters that together carry all rows; `before` stands before the rows in each of them."""
    at = 0
    while at < len(rows):
        left = len(rows) - at
        size = next(size for size in SIZES if left * 2 > size)
        part = rows[at : at + size]
        params = [*before, *chain.from_iterable(part)]
        params += [None, *[0] * (columns - 1)] * (size - len(part))
        yield with_rows(template, columns, size), params
        at += size
