"""The page of the documentation that shows results: what stands between two markers is written anew."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "growth.md"


def publish(name: str, text: str, page: Path = PAGE) -> None:
    """Puts a text between `<!-- name:begin -->` and `<!-- name:end -->`; ValueError if the page has no such place."""
    whole = page.read_text("utf-8")
    place = re.compile(f"(<!-- {re.escape(name)}:begin -->\n).*?(<!-- {re.escape(name)}:end -->)", re.DOTALL)
    if len(place.findall(whole)) != 1:
        raise ValueError(f"{page.name} has no place for {name}")
    page.write_text(place.sub(lambda found: f"{found[1]}{text.rstrip()}\n{found[2]}", whole), "utf-8")


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    lines = [head, ["---", *("---:" for _ in head[1:])], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
