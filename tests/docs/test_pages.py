"""The reader of pages is itself tested: a check of the documentation that cannot fail would be worth nothing."""

from __future__ import annotations

from pathlib import Path

from tests.docs import pages

PAGE = """# Title

See [one](other.md#part-two), ![picture](none.png) and [two](https://example.com "hint").

## `Queue`

| `name` | the name |

### Deeper

`--for` and `wait(seconds=1)`

## Next: a part

<!-- not run: needs a server -->
```python
# ## not a heading [nor](a-link)
inside = 1
```
"""


def test_links_are_found_outside_code() -> None:
    """Links count, pictures and what stands in a block of code do not."""
    assert pages.links(PAGE) == ["other.md#part-two", "https://example.com"]


def test_anchors_follow_the_headings() -> None:
    """A heading makes its anchor; a comment in a block of code makes none."""
    assert pages.anchors(PAGE) == {"title", "queue", "deeper", "next-a-part"}


def test_a_section_ends_at_its_equal() -> None:
    """A section holds its deeper headings and ends where the next of its level begins."""
    text = pages.section(PAGE, "Queue")
    assert "`name`" in text
    assert "wait(seconds=1)" in text
    assert "inside" not in text
    assert pages.section(PAGE, "Absent") == ""


def test_names_are_what_stands_in_code() -> None:
    """Identifiers and options count between backticks and in blocks, words of the prose do not."""
    assert {"name", "--for", "wait", "seconds", "inside"} <= pages.names(PAGE)
    assert "Deeper" not in pages.names(PAGE)


def test_blocks_carry_their_comment(tmp_path: Path) -> None:
    """A block knows its language, its line and the comment right above it."""
    page = tmp_path / "page.md"
    page.write_text(PAGE, "utf-8")
    [block] = pages.blocks(page)
    assert (block.language, block.line, block.comment) == ("python", 16, "not run: needs a server")
    assert block.code.endswith("inside = 1\n")
