"""The files the tidy tests look at."""

from __future__ import annotations

import ast
import subprocess
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src"
TESTS = ROOT / "tests"


def files_of_source() -> list[Path]:
    """Every Python file of the package."""
    return sorted(SRC.rglob("*.py"))


def files_of_tests() -> list[Path]:
    """Every Python file of the tests, helpers included."""
    return sorted(TESTS.rglob("*.py"))


def files_of_repository() -> list[Path]:
    """Every file that is, or would be, in the repository; where git cannot tell, every file that was not made by a tool."""
    listed = _listed_by_git() or [path for path in ROOT.rglob("*") if not _made(path.relative_to(ROOT))]
    return sorted(path for path in listed if path.is_file())


@cache
def parse(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text("utf-8"), str(path))


def label(path: Path) -> str:
    """A file's name as people write it: from the root of the repository."""
    return path.relative_to(ROOT).as_posix()


def module_name(path: Path) -> str:
    """The dotted name under which a file of the package is imported."""
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _listed_by_git() -> list[Path]:
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        answer = subprocess.run(command, capture_output=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return []
    return [ROOT / name for name in answer.stdout.decode().split("\0") if name]


def _made(path: Path) -> bool:
    """Whether a tool made the file, going by .gitignore, whose lines here are all plain names or patterns of names."""
    ignored = [line.strip("/") for line in (ROOT / ".gitignore").read_text("utf-8").splitlines() if line and not line.startswith("#")]
    return any(part == ".git" or any(fnmatch(part, pattern) for pattern in ignored) for part in path.parts)
