"""The documentation as data: pages, headings, sections, links and code blocks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"

_FENCE = re.compile(r"^(?P<mark>```+|~~~+)(?P<language>\w*)[^\n]*\n(?P<code>.*?)^(?P=mark)\s*$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^(#{1,6})\s+(.+?)\s*#*\s*$", re.MULTILINE)
_LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
_SPAN = re.compile(r"(`+)([^`\n]+)\1")
_COMMENT = re.compile(r"<!--\s*(.*?)\s*-->\s*\Z", re.DOTALL)


class Block(NamedTuple):
    """A fenced block of code and the comment right above it."""

    page: Path
    line: int
    language: str
    code: str
    comment: str


def pages() -> list[Path]:
    """Every page of the documentation, the ones at the root included."""
    return sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])


def label(path: Path) -> str:
    """A page's name from the root of the repository."""
    return path.relative_to(ROOT).as_posix()


def prose(text: str) -> str:
    """A page without its code blocks (their lines stay, empty)."""
    return _FENCE.sub(lambda match: "\n" * match.group().count("\n"), text)


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text("utf-8")
    found = []
    for match in _FENCE.finditer(text):
        comment = _COMMENT.search(text[: match.start()])
        line = text.count("\n", 0, match.start()) + 1
        found.append(Block(page, line, match["language"], match["code"], comment[1] if comment else ""))
    return found


def links(text: str) -> list[str]:
    """The targets of the links of a page."""
    return _LINK.findall(prose(text))


def anchors(text: str) -> set[str]:
    """The anchors that the headings of a page make."""
    return {slug(title) for _, title in _HEADING.findall(prose(text))}


def slug(title: str) -> str:
    """The anchor of a heading: lower case, without punctuation, hyphens for blanks."""
    return re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-")


def section(text: str, title: str) -> str:
    """What stands under a heading, up to the next one of the same or a higher level; empty if there is none."""
    headings = list(_HEADING.finditer(prose_of_same_length(text)))
    for position, heading in enumerate(headings):
        if heading[2].replace("`", "") == title:
            level = len(heading[1])
            end = next((later.start() for later in headings[position + 1 :] if len(later[1]) <= level), len(text))
            return text[heading.end() : end]
    return ""


def prose_of_same_length(text: str) -> str:
    """A page whose code blocks are blanked out character by character, so that positions stay."""
    return _FENCE.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


def names(text: str) -> set[str]:
    """Every identifier and option that stands in code: between backticks, or in a block of code."""
    code = [match["code"] for match in _FENCE.finditer(text)]
    code += [inner for _, inner in _SPAN.findall(prose(text))]
    return {name for piece in code for name in re.findall(r"--[a-z][\w-]*|[A-Za-z_]\w*", piece)}
