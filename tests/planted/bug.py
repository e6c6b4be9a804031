"""A planted bug: one small wrong edit of the engine, as text to be replaced, and what is expected to notice it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parents[2] / "src"


class Bug(NamedTuple):
    """`old` stands exactly once in the file; `new` takes its place. Without `tests` the simulation has to find it."""

    name: str
    of: str  # the bugs of the source designs that it is an instance of, or "" where it is one of our own
    file: str  # below src/mulligan
    old: str
    new: str
    tests: tuple[str, ...] = ()  # named tests of which one must fail, where simulation cannot see it
    store: str = "memory"  # that those tests run on


class NotPlantable(Exception):
    """The source has changed, so that the edit does not fit any more: mend the entry, or drop it if the code it broke is gone."""


def edited(bug: Bug) -> str:
    """The text of the file with the bug in it."""
    text = (SOURCE / "mulligan" / bug.file).read_text()
    found = len(re.findall(re.escape(bug.old), text))
    if found != 1:
        raise NotPlantable(f"{bug.name}: its text stands {found} times in {bug.file}, not once")
    return text.replace(bug.old, bug.new)


def plant(bug: Bug, folder: Path) -> Path:
    """A copy of the package with the bug in it; the folder to put first on the path."""
    text = edited(bug)
    shutil.copytree(SOURCE / "mulligan", folder / "mulligan", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "mulligan" / bug.file).write_text(text)
    return folder
