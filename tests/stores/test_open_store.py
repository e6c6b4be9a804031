from __future__ import annotations

import subprocess
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
    "url, kind",
    [
        ("postgresql://localhost/jobs", "PostgresStore"),
        ("postgres://localhost/jobs", "PostgresStore"),
        ("mongodb://localhost/jobs", "MongoStore"),
        ("redis://localhost:6379/0", "RedisStore"),
        ("rediss://localhost:6379/0", "RedisStore"),
        ("REDIS://localhost", "RedisStore"),
    ],
)
def test_a_url_names_its_store_without_reaching_for_it(url: str, kind: str) -> None:
    """The scheme chooses the store; nothing is connected before it is opened."""
    assert type(open_store(url)).__name__ == kind


@pytest.mark.parametrize(
    "url, package, driver, extra",
    [
        ("postgresql://localhost/jobs", "postgres", "asyncpg", "postgres"),
        ("mongodb://localhost/jobs", "mongo", "pymongo", "mongo"),
        ("redis://localhost", "redis", "redis", "redis"),
    ],
)
def test_a_missing_driver_is_named_with_the_way_to_install_it(url: str, package: str, driver: str, extra: str) -> None:
    """Whoever installed only the core hears which extra to add."""
    hide = f"import sys; sys.modules[{driver!r}] = None"
    ask = f"from mulligan.stores import open_store; open_store({url!r})"
    answer = subprocess.run([sys.executable, "-c", f"{hide}\n{ask}"], capture_output=True, text=True, check=False, timeout=30)
    assert answer.returncode == 1
    assert answer.stderr.splitlines()[-1].startswith("mulligan.core.errors.BadSetting: ")
    assert f"pip install 'mulligan[{extra}]'" in answer.stderr


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
    """Neither the error nor the store that was made shows a password, wherever it stands in the URL."""
    try:
        store = open_store(url)
        shown = [store.url, repr(store), str(vars(store).get("_where", ""))]
    except BadSetting as problem:
        shown = [str(problem), repr(problem)]
    for text in (*shown, redacted(url)):
        assert "cret" not in text
        assert "s3" not in text


def test_host_and_path_stay_readable() -> None:
    """What is not secret helps to find the mistake."""
    assert redacted("postgresql://ann:x@db.example:5432/jobs?a=b") == "postgresql://***@db.example:5432/jobs?***"
    assert redacted("redis://localhost:6379/0") == "redis://localhost:6379/0"


def test_a_driver_is_imported_only_when_its_url_is_used() -> None:
    """Whoever uses one store pays for no other."""
    code = "import sys; from mulligan.stores import open_store; open_store('memory://'); print(*sys.modules)"
    loaded = set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30).stdout.split())
    assert loaded & {"asyncpg", "pymongo", "redis", "sqlite3", "mulligan.stores.network"} == set()
