"""Typed end to end: mypy --strict accepts the right calls, knows their types, and refuses each wrong one."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
IGNORE = re.compile(r"  # type: ignore\[([a-z-]+)\]")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[int, str]]]:
    """What mypy finds in the right calls, and in the wrong ones once nothing is ignored: file -> (line, error code)."""
    bare = tmp_path_factory.mktemp("typing") / "wrong_calls_bare.py"
    bare.write_text(IGNORE.sub("", (FOLDER / "wrong_calls.py").read_text("utf-8")), "utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--no-pretty", "--hide-error-context"]
    answer = subprocess.run(
        [*command, str(FOLDER / "right_calls.py"), str(FOLDER / "wrong_calls.py"), str(bare)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert answer.returncode in (0, 1), answer.stdout + answer.stderr
    errors: dict[str, list[tuple[int, str]]] = {}
    for line in answer.stdout.splitlines():
        match = re.fullmatch(r"(.+?):(\d+): error: .*\[([a-z-]+)\]", line)
        if match:
            errors.setdefault(Path(match[1]).name, []).append((int(match[2]), match[3]))
        else:
            assert ": note: " in line, line
    return errors


@pytest.mark.timeout(300)
def test_right_calls_are_accepted(found: dict[str, list[tuple[int, str]]]) -> None:
    """Async and sync, with and without context, decorated either way: no error, and each result has its own type."""
    assert found.get("right_calls.py", []) == []


@pytest.mark.timeout(300)
def test_wrong_calls_are_refused(found: dict[str, list[tuple[int, str]]]) -> None:
    """Exactly the marked lines are errors, each of the kind it names."""
    lines = (FOLDER / "wrong_calls.py").read_text("utf-8").splitlines()
    wanted = [(number, match[1]) for number, line in enumerate(lines, start=1) if (match := IGNORE.search(line))]
    assert len(wanted) > 25
    assert found.get("wrong_calls_bare.py", []) == wanted


@pytest.mark.timeout(300)
def test_the_marks_are_needed_and_enough(found: dict[str, list[tuple[int, str]]]) -> None:
    """With its marks the file of wrong calls passes, so `make check` can read it, and no mark is superfluous."""
    assert found.get("wrong_calls.py", []) == []
