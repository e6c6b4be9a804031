"""Every block of Python in the documentation runs, unless a comment above it says why it does not.

<!-- not run: needs a server -->     it is left out, for that reason
<!-- continues -->                   it is run after the block before it, as one program
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import Block, blocks, label, pages


def programs(found: list[Block]) -> list[Block]:
    """The programs of a page: each block that runs, with those before it that it continues."""
    made: list[Block] = []
    before = ""
    for block in found:
        if block.language != "python":
            continue
        code = before + block.code if block.comment == "continues" else block.code
        before = code
        made.append(block._replace(code=code))
    return made


ALL = [program for page in pages() for program in programs(blocks(page))]


def name(block: Block) -> str:
    return f"{label(block.page)}:{block.line}"


@pytest.mark.parametrize("block", [block for block in ALL if not block.comment.startswith("not run")], ids=name)
def test_example_runs(block: Block, tmp_path: Path) -> None:
    """The example ends well in an empty folder, without a warning."""
    script = tmp_path / "example.py"
    script.write_text(block.code, "utf-8")
    answer = subprocess.run(
        [sys.executable, "-W", "error", script.name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
        stdin=subprocess.DEVNULL,
    )
    assert answer.returncode == 0, answer.stderr


@pytest.mark.parametrize("block", [block for block in ALL if block.comment.startswith("not run")], ids=name)
def test_illustration_is_python_and_has_its_reason(block: Block) -> None:
    """What is not run at least parses, and says why it is not run."""
    _, _, reason = block.comment.partition(":")
    assert reason.strip()
    ast.parse(block.code)


def test_there_are_examples_that_run() -> None:
    """The README's example is among those that run."""
    assert any(label(block.page) == "README.md" and not block.comment for block in ALL)


def test_a_continued_block_runs_after_its_forerunner() -> None:
    """A block that continues another is one program with it; the next one stands alone again."""
    page = Path("page.md")
    found = [
        Block(page, 1, "python", "a = 1\n", ""),
        Block(page, 5, "python", "b = a\n", "continues"),
        Block(page, 9, "console", "$ x\n", ""),
        Block(page, 13, "python", "c = 1\n", ""),
    ]
    assert [program.code for program in programs(found)] == ["a = 1\n", "a = 1\nb = a\n", "c = 1\n"]
