"""`python -m benchmarks.storms` and the page that shows what it found."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from benchmarks.storms import __main__ as command
from benchmarks.storms.stage import Figure, Outcome

from mulligan.sim.chart import Chart
from tests.docs.pages import DOCS

pytestmark = pytest.mark.timeout(300)
PAGE = DOCS / "guide" / "storms.md"
# Each scene as small as it can be played: what comes out says nothing, but it comes out whole.
TINY = {
    "mass": {"sizes": (3, 4), "slots": 2, "every_s": 5},
    "vanished": {"jobs": 5, "slots": 1, "fed_s": 35},
    "outage": {"slots": 2, "slots_refused": 1, "calm_s": 5, "outage_s": 36},
    "aligned": {"jobs": 50, "seeds": 1, "down_s": 5, "samples": 500},
    "dead": {"slots": 2, "calm_s": 5, "outage_s": 20, "forms": ("slow", "hangs")},
    "flapping": {"slots": 2, "calm_s": 5, "flapping_s": 30, "down_s": 5, "up_s": 10},
    "tenants": {"flood_jobs": 50, "backlog": 2, "steady_s": 12},
}


def typed(monkeypatch: pytest.MonkeyPatch, scenes: dict[str, Callable[..., Outcome]], *arguments: str) -> int:
    """Runs the command with these scenes; its exit code."""
    monkeypatch.setattr(command, "SCENES", scenes)
    monkeypatch.setattr(sys, "argv", ["storms", *arguments])
    return command.main()


def test_every_scene_gives_figures_and_plots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Each scene ends with figures, as JSON, and with the plots that the guide shows."""
    small = {name: partial(scene, **TINY[name]) for name, scene in command.SCENES.items()}
    typed(monkeypatch, small, "--json", "--out", str(tmp_path), "--seed", "3")
    found = json.loads(capsys.readouterr().out)
    assert {name for name, figures in found.items() if figures} == set(small)
    assert {"name", "value", "unit", "at_most"} == set(found["mass"][0])
    for picture in tmp_path.iterdir():
        ET.parse(picture)
    assert {picture.name for picture in tmp_path.iterdir()} == pictures()


def pictures() -> set[str]:
    """The plots that the guide shows."""
    return set(re.findall(r"!\[[^\]]+\]\(img/([\w-]+\.svg)\)", PAGE.read_text("utf-8")))


def test_the_guide_shows_plots_that_are_there() -> None:
    """Each picture on the page is in the repository, and none lies there unused."""
    assert pictures() == {path.name for path in (PAGE.parent / "img").glob("*.svg")}


def test_the_table_tells_which_bound_is_broken(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Bounds stand beside the figures; a broken one makes the command fail."""

    def scene(bound: float, seed: int) -> Outcome:
        return Outcome([Figure("calls", 4, "", bound), Figure("wait", 0.25, "s")], {"plot": Chart("t", "x", "y")})

    assert typed(monkeypatch, {"good": partial(scene, 4)}) == 0
    assert typed(monkeypatch, {"good": partial(scene, 4), "bad": partial(scene, 3)}, "--only", "bad") == 1
    text = capsys.readouterr().out
    assert "at most 4: holds" in text
    assert "at most 3: BROKEN" in text
    assert "0.25 s" in text
