"""Options in the URL of a store behind a network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mulligan.core.errors import BadSetting
from mulligan.stores.network.options import Options, split_options

OURS = ("schema", "timeout", "connections", "mode")


def split(url: str) -> Options:
    return split_options(url, OURS, "x://***")


def test_ours_are_taken_out_and_theirs_stay() -> None:
    """What is not ours belongs to the driver, with its values as they were."""
    options = split("x://ann:p%40ss@host:1/db?schema=jobs&sslmode=require&timeout=3&target=a%26b")
    assert options.driver_url == "x://ann:p%40ss@host:1/db?sslmode=require&target=a%26b"
    assert options.given == {"schema": "jobs", "timeout": "3"}
    assert options.name("schema", "mulligan") == "jobs"
    assert options.seconds("timeout", 10, 14) == 3
    assert options.number("connections", 8, 200) == 8
    assert options.one_of("mode", ("auto", "on")) == "auto"


@pytest.mark.parametrize(
    "query, read",
    [
        ("timeout=0", lambda o: o.seconds("timeout", 10, 14)),
        ("timeout=15", lambda o: o.seconds("timeout", 10, 14)),
        ("timeout=soon", lambda o: o.seconds("timeout", 10, 14)),
        ("timeout=nan", lambda o: o.seconds("timeout", 10, 14)),
        ("connections=0", lambda o: o.number("connections", 8, 200)),
        ("connections=201", lambda o: o.number("connections", 8, 200)),
        ("connections=-1", lambda o: o.number("connections", 8, 200)),
        ("connections=²", lambda o: o.number("connections", 8, 200)),
        ("connections=99999999999999", lambda o: o.number("connections", 8, 200)),
        ("mode=off", lambda o: o.one_of("mode", ("auto", "on"))),
        ("schema=Jobs", lambda o: o.name("schema", "mulligan")),
        ("schema=", lambda o: o.name("schema", "mulligan")),
        ("schema=a%22%3Bdrop", lambda o: o.name("schema", "mulligan")),
        ("schema=" + "a" * 49, lambda o: o.name("schema", "mulligan")),
    ],
)
def test_bad_values_are_refused_by_name(query: str, read: Callable[[Options], Any]) -> None:
    """The error names the option and what it may be."""
    with pytest.raises(BadSetting, match=query.partition("=")[0]):
        read(split(f"x://host/db?{query}"))


@pytest.mark.parametrize("url", ["x://ann:s3cret@host:port/db", "x://ann:s3cret@host/db?a", "x://ann:s3cret@host/?timeout=1&timeout=2"])
def test_bad_urls_are_refused_without_their_secrets(url: str) -> None:
    """A port that is no number, an option without a value, an option given twice."""
    with pytest.raises(BadSetting) as caught:
        split(url)
    assert "s3cret" not in str(caught.value)
