"""The table of required behaviours: each number has its test and its page, and both exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.docs.pages import REFERENCE, ROOT, links

TABLE = REFERENCE / "seed-coverage.md"
COUNTS = {"M": 15, "W": 11, "P": 10, "R": 14, "O": 18}
NUMBERS = [f"{letter}{number:02}" for letter, count in COUNTS.items() for number in range(1, count + 1)]


class Row(NamedTuple):
    """One line of the table."""

    number: str
    tests: list[str]
    pages: list[str]
    text: str


def rows(text: str) -> list[Row]:
    """The lines of the table: number | test | page. Tests stand in backticks as path::function, pages as links."""
    found = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        number = cells[0].strip("`* ")
        if len(cells) >= 3 and re.fullmatch(r"[MWPRO]\d\d", number):
            found.append(Row(number, re.findall(r"`([^`]+::[^`]+)`", cells[1]), links(cells[2]), line))
    return found


@cache
def functions_in(path: Path) -> frozenset[str]:
    """The test functions of a file, methods as Class::method."""
    found = set()
    tree = ast.parse(path.read_text("utf-8"))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)}
    return frozenset(found)


def problem_with(test: str) -> str:
    """Why a test named in the table is not one; empty if it is."""
    name, _, function = test.partition("::")
    path = ROOT / name
    if not path.is_file():
        return f"{test}: no such file"
    function = function.partition("[")[0]
    if not function.rpartition("::")[2].startswith("test_"):
        return f"{test}: not a test"
    return "" if function in functions_in(path) else f"{test}: no such function"


def test_every_number_has_a_row() -> None:
    """Each number of the requirements stands in the table exactly once."""
    assert sorted(row.number for row in rows(TABLE.read_text("utf-8"))) == sorted(NUMBERS)


@pytest.mark.parametrize("number", NUMBERS)
def test_number_is_tested_and_documented(number: str) -> None:
    """The row names tests that exist and a page that exists."""
    [row] = [row for row in rows(TABLE.read_text("utf-8")) if row.number == number]
    assert row.tests, f"{number} names no test"
    assert [problem for test in row.tests if (problem := problem_with(test))] == []
    assert row.pages, f"{number} links no page"
    assert [page for page in row.pages if not (REFERENCE / page.partition("#")[0]).resolve().is_file()] == []


def test_a_wrong_row_is_noticed() -> None:
    """A missing file, a missing function and a helper are problems; a real test, also with a parameter, is none."""
    here = "tests/docs/test_seed_coverage.py"
    assert problem_with("tests/docs/absent.py::test_x") == "tests/docs/absent.py::test_x: no such file"
    assert problem_with(f"{here}::test_absent") == f"{here}::test_absent: no such function"
    assert problem_with(f"{here}::rows") == f"{here}::rows: not a test"
    assert problem_with(f"{here}::test_number_is_tested_and_documented[M01]") == ""


def test_rows_are_read() -> None:
    """A row gives its number, its tests and its pages."""
    [row] = rows("| number | test | page |\n|---|---|---|\n| M01 | `tests/a.py::test_b`, `tests/c.py::test_d` | [jobs](jobs.md) |\n")
    assert row[:3] == ("M01", ["tests/a.py::test_b", "tests/c.py::test_d"], ["jobs.md"])
