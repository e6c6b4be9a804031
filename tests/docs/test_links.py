from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, anchors, label, links, pages


def broken(page: Path) -> list[str]:
    """The links of a page that lead nowhere inside the repository."""
    found = []
    for target in links(page.read_text("utf-8")):
        if re.match(r"[a-z]+:", target):
            continue  # another site: not ours to check, and a test needs no network
        name, _, anchor = target.partition("#")
        goal = (page.parent / name).resolve() if name else page
        if not goal.exists():
            found.append(f"{label(page)}: {target} does not exist")
        elif anchor and anchor not in anchors(goal.read_text("utf-8")):
            found.append(f"{label(page)}: {target} has no such heading")
    return found


@pytest.mark.parametrize("page", pages(), ids=label)
def test_links_resolve(page: Path) -> None:
    """Every link between pages leads to a file, and every anchor to a heading."""
    assert broken(page) == []


def test_every_page_is_reachable() -> None:
    """From the index one can walk to every page under docs/."""
    seen: set[Path] = set()
    waiting = [DOCS / "index.md"]
    while waiting:
        page = waiting.pop()
        if page in seen:
            continue
        seen.add(page)
        targets = [(page.parent / link.partition("#")[0]).resolve() for link in links(page.read_text("utf-8")) if "://" not in link]
        waiting += [target for target in targets if target.suffix == ".md" and target.exists()]
    assert [label(page) for page in DOCS.rglob("*.md") if page not in seen] == []


def test_a_broken_link_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing file and a missing heading are both findings."""
    monkeypatch.setattr("tests.docs.test_links.label", lambda page: page.name)
    page = tmp_path / "page.md"
    page.write_text("# Here\n[a](gone.md) [b](#nowhere) [c](#here)\n", "utf-8")
    assert broken(page) == ["page.md: gone.md does not exist", "page.md: #nowhere has no such heading"]
