from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.tidy import rules
from tests.tidy.allowed import COMPOSED_SQL, ENTRY_POINTS, SLEEPING_TESTS, TIME_AND_CHANCE
from tests.tidy.tree import files_of_repository, files_of_source, files_of_tests, label, module_name, parse


def over(files: Iterable[Path], rule: Callable[..., list[str]]) -> list[str]:
    """The findings of a rule over the syntax trees of some files."""
    return [f"{label(path)}:{finding}" for path in files for finding in rule(parse(path))]


def beyond(allowed: dict[str, str], files: Iterable[Path], rule: Callable[..., dict[str, list[int]]]) -> list[str]:
    """The places a rule finds that no allow-list names, and the entries of the list that nothing needs any more."""
    found = {f"{label(path)}::{owner}": lines for path in files for owner, lines in rule(parse(path)).items()}
    unlisted = [f"{place} (lines {lines})" for place, lines in found.items() if place not in allowed]
    return unlisted + [f"{place} is allowed, but no longer there" for place in allowed if place not in found]


def nothing(findings: list[str]) -> None:
    """Fails with one finding a line."""
    assert not findings, "\n".join(["", *findings])


def test_there_is_something_to_look_at() -> None:
    """The rules run over the package and the tests, not over empty lists."""
    assert {"src/mulligan/core/job.py", "src/mulligan/core/clock.py"} <= {label(path) for path in files_of_source()}
    assert label(Path(__file__).resolve()) in {label(path) for path in files_of_tests()}
    assert {"README.md", "Makefile", ".ci/run", "requirements/dev.txt"} <= {label(path) for path in files_of_repository()}


def test_files_are_short() -> None:
    """No file of the package is longer than one noun needs."""
    nothing([f"{label(path)}:{finding}" for path in files_of_source() for finding in rules.long_file(path.read_text("utf-8"))])


def test_functions_are_short() -> None:
    """No function of the package is longer than one thought needs."""
    nothing(over(files_of_source(), rules.long_functions))


def test_time_and_chance_come_from_outside() -> None:
    """Only core/clock reads the wall clock or makes a generator out of nothing."""
    nothing(over((path for path in files_of_source() if label(path) not in TIME_AND_CHANCE), rules.clock_and_chance))


def test_the_one_clock_is_really_read_there() -> None:
    """The exception for core/clock is needed: it does read the wall clock."""
    assert all(over([path for path in files_of_source() if label(path) == name], rules.clock_and_chance) for name in TIME_AND_CHANCE)


def test_text_never_becomes_code() -> None:
    """No pickle, marshal, yaml, eval, exec or shell anywhere in the package."""
    nothing(over(files_of_source(), rules.dangerous))


def test_sql_is_not_pasted_together() -> None:
    """SQL made from text stands in the allow-list with its reason, or nowhere."""
    nothing(beyond(COMPOSED_SQL, files_of_source(), rules.composed_sql))


def test_every_module_says_what_it_is() -> None:
    """Each module of the package opens with a docstring."""
    nothing(over(files_of_source(), rules.missing_module_docstring))


def test_every_test_says_what_it_shows() -> None:
    """Each test function has a docstring."""
    nothing(over(files_of_tests(), rules.undocumented_tests))


def test_tests_wait_for_signals_not_for_seconds() -> None:
    """No test sleeps on the wall clock, but for those listed with their reason."""
    nothing(beyond(SLEEPING_TESTS, files_of_tests(), rules.sleeps))


def test_no_module_is_dead() -> None:
    """Each module of the package is imported by another one or is an entry point."""
    nothing(rules.dead_modules({module_name(path): parse(path) for path in files_of_source()}, set(ENTRY_POINTS)))


def test_every_entry_point_is_there() -> None:
    """The list of entry points names modules that exist."""
    assert set(ENTRY_POINTS) <= {module_name(path) for path in files_of_source()}


def test_nothing_tells_where_it_was_made() -> None:
    """No tracked file names a path of a machine or the address of a package registry."""
    found = []
    for path in files_of_repository():
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{label(path)}:{finding}" for finding in rules.traces(text)]
    nothing(found)


@pytest.mark.parametrize("name", ["dev.txt", "mutation.txt"])
def test_requirements_are_pinned_and_hashed(name: str) -> None:
    """Each requirement has one version and at least one hash, and names no address."""
    root = next(path for path in files_of_repository() if label(path) == "pyproject.toml").parent
    entries = (root / "requirements" / name).read_text("utf-8").replace("\\\n", " ").splitlines()
    assert entries
    for entry in entries:
        pin, *hashes = entry.split(" --hash=")
        assert "==" in pin
        assert "://" not in pin
        assert "@" not in pin
        assert hashes
        assert all(digest.strip().startswith("sha256:") for digest in hashes)
