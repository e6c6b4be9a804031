"""The list of planted bugs stays plantable, is long enough, and some of each kind are caught here; `make planted` hunts them all."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.planted.bug import Bug, NotPlantable, edited
from tests.planted.hunt import hunt, red_unplanted
from tests.planted.listed import BUGS, BY_DESIGN

ROOT = Path(__file__).parents[2]
QUICK = ("a settle needs no fence", "a claim counts twice", "a release costs an attempt", "an outcome whose write fails is given up")


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_it_can_be_planted(bug: Bug) -> None:
    """Its text still stands in the source, once, and what comes of the edit is code."""
    text = edited(bug)
    if bug.file.endswith(".py"):
        ast.parse(text)
    assert text != (ROOT / "src/mulligan" / bug.file).read_text()
    for test in bug.tests:
        assert (ROOT / test.split("::")[0]).exists(), test


def test_there_are_enough() -> None:
    """At least sixty, each with a name of its own, most of them for the simulation."""
    names = [bug.name for bug in BUGS]
    assert len(set(names)) == len(names) >= 60
    assert sum(not bug.tests for bug in BUGS) >= 60
    assert all(re.fullmatch(r"([A-E]\d+( |$))*", bug.of) for bug in BUGS)


def test_every_bug_of_the_source_designs_is_planted_or_cannot_be() -> None:
    """Each of the 116 stands for a planted bug, or for a reason why there is nothing here that could be broken so."""
    counts = {"A": 36, "B": 16, "C": 20, "D": 16, "E": 28}
    known = {f"{letter}{number}" for letter, count in counts.items() for number in range(1, count + 1)}
    planted = {one for bug in BUGS for one in bug.of.split()}
    assert planted | set(BY_DESIGN) == known
    assert not planted & set(BY_DESIGN)


def test_a_bug_that_does_not_fit_is_told() -> None:
    """An entry whose text is gone is an error, never a bug that nobody could catch."""
    with pytest.raises(NotPlantable, match="0 times"):
        edited(BUGS[0]._replace(old="this text is nowhere"))


@pytest.mark.parametrize("name", QUICK)
def test_it_is_caught(name: str) -> None:
    """A few of them, from the edit of the source to the verdict."""
    [bug] = [bug for bug in BUGS if bug.name == name]
    catch = hunt(bug, seeds=100)
    assert catch.caught, catch.by


def test_nothing_is_caught_where_nothing_is_planted() -> None:
    """An edit that changes nothing: a hunt that cries wolf would catch every bug."""
    harmless = Bug("nothing", "", "stores/memory_rows.py", "def is_held(", "def is_held(")
    assert not hunt(harmless, seeds=20).caught


def test_a_breakdown_is_no_catch() -> None:
    """An engine that raises whenever it is asked breaks the simulation, and no invariant."""
    raises = Bug("it raises", "", "stores/memory.py", "async def insert(self,", "async def insert(self, nobody_gives_this,")
    catch = hunt(raises, seeds=1)
    assert not catch.caught
    assert "breaks down" in catch.by


def test_a_hunt_without_an_end_is_no_catch() -> None:
    """It is told, and the run goes on with the next bug."""
    endless = Bug("it hangs", "", "stores/memory_rows.py", "def is_held(", "while True:\n    pass\n\n\ndef is_held(")
    catch = hunt(endless, seeds=1, limit_s=2.0)
    assert not catch.caught
    assert "no answer" in catch.by
    assert red_unplanted([endless._replace(tests=("tests/planted",))], limit_s=0.01)


def test_tests_that_fail_anyway_are_told(tmp_path: Path) -> None:
    """They catch whatever is planted, so they catch nothing; those that pass are not told, and each is run once."""
    (tmp_path / "test_red.py").write_text("def test_red() -> None:\n    assert False\n")
    (tmp_path / "test_green.py").write_text(f"def test_green() -> None:\n    open({str(tmp_path / 'ran')!r}, 'a').write('once ')\n")
    bug = Bug("any", "", "stores/memory_rows.py", "def is_held(", "def is_held(")
    red, green = (bug._replace(tests=(str(tmp_path / f"test_{name}.py"),)) for name in ("red", "green"))
    assert red_unplanted([bug, green, green]) == []
    assert (tmp_path / "ran").read_text() == "once "
    [told] = red_unplanted([green, red])
    assert "test_red.py" in told
