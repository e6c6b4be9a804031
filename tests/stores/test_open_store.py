from __future__ import annotations

import sys

import pytest

from mulligan.core.clock import ManualClock
from mulligan.core.errors import BadSetting
from mulligan.stores import FORMS, open_store, redacted


async def test_memory_url_gives_a_new_store_each_time() -> None:
    """memory:// is a store of its own, on the clock that was given, not yet opened."""
    clock = ManualClock()
    one, two = open_store("memory://", clock=clock), open_store("memory://", clock=clock)
    assert one is not two
    assert one.url == "memory://"
    await one.open()
    assert await one.now_us() == clock.now_us()
    await one.close()


@pytest.mark.parametrize(
    "url, name",
    [
        ("postgresql://localhost/jobs", "PostgreSQL"),
        ("postgres://localhost/jobs", "PostgreSQL"),
        ("mongodb://localhost/jobs", "MongoDB"),
        ("mongodb+srv://cluster.example/jobs", "MongoDB"),
        ("redis://localhost:6379/0", "Redis"),
        ("rediss://localhost:6379/0", "Redis"),
        ("REDIS://localhost", "Redis"),
    ],
)
def test_stores_of_later_versions_are_named_as_such(url: str, name: str) -> None:
    """A well-known store that this version lacks is refused by name, with what can be used instead."""
    with pytest.raises(BadSetting, match=f"the {name} store is not available in this version") as caught:
        open_store(url)
    assert FORMS in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "jobs.db",
        "/var/lib/jobs.db",
        "sqlite",
        "sqlite:",
        "sqlite:jobs.db",
        "sqlite:/jobs.db",
        "sqlite://jobs.db",
        "memory",
        "memory:",
        "memory:///",
        "memory://name",
        "redis:localhost",
        "mysql://localhost/x",
        "http://localhost",
        "://",
        "\n",
    ],
)
def test_malformed_urls_are_refused_with_the_right_forms(url: str) -> None:
    """The error shows how a URL is written, and quotes the wrong one."""
    with pytest.raises(BadSetting) as caught:
        open_store(url)
    assert FORMS in str(caught.value)
    assert repr(url) in str(caught.value)


@pytest.mark.parametrize("url", [None, 7, b"memory://"])
def test_a_url_is_a_text(url: object) -> None:
    """Anything but a text is refused, with the forms."""
    with pytest.raises(BadSetting, match="must be a text"):
        open_store(url)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:s3cret@db.example/jobs",
        "postgresql://ann:s3@cret@db.example/jobs",
        "postgresql://ann:s3/cret@db.example/jobs",
        "postgresql://ann:s3?cret@db.example/jobs",
        "postgresql://s3cret@db.example/jobs",
        "postgresql://db.example/jobs?password=s3cret&user=ann",
        "redis://:s3cret@db.example:6379/0",
        "mongodb+srv://ann:s3cret@db.example/?tls=true",
        "mysql://ann:s3cret@db.example/jobs",
        "ann:s3cret@db.example",
        "postgresql:/ann:s3cret@db.example",
        "postgresql:ann:s3cret@db.example?x=s3cret",
        "sqlite://ann:s3cret@jobs.db",
    ],
)
def test_secrets_are_not_shown(url: str) -> None:
    """Neither the error nor its repr shows a password, wherever it stands in the URL."""
    with pytest.raises(BadSetting) as caught:
        open_store(url)
    for text in (str(caught.value), repr(caught.value), redacted(url)):
        assert "cret" not in text
        assert "s3" not in text


def test_host_and_path_stay_readable() -> None:
    """What is not secret helps to find the mistake."""
    assert redacted("postgresql://ann:x@db.example:5432/jobs?a=b") == "postgresql://***@db.example:5432/jobs?***"
    assert redacted("redis://localhost:6379/0") == "redis://localhost:6379/0"


def test_a_driver_is_imported_only_when_its_url_is_used() -> None:
    """Naming a store costs nothing until it is asked for."""
    known = set(sys.modules)
    with pytest.raises(BadSetting):
        open_store("redis://localhost")
    assert {name for name in set(sys.modules) - known if "sqlite" in name} == set()
