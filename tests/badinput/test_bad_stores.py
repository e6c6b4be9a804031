"""Bad places for a store: each is refused with what to do, and whatever lies there is left as it was."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mulligan import BadSetting, Mulligan, MulliganError, SchemaMismatch, StoreUnavailable
from mulligan.stores import pending_migrations

MALFORMED = [
    ("", "is not a store URL"),
    ("jobs.db", "is not a store URL"),
    ("/var/lib/jobs.db", "is not a store URL"),
    ("sqlite", "is not a store URL"),
    ("sqlite:jobs.db", "is not a store URL"),
    ("sqlite://jobs.db", "is not a store URL"),
    ("sqlite://", "is not a store URL"),
    ("sqlite:///", "names no file"),
    ("sqlite:////", "names no file"),
    ("sqlite:///:memory:", "memory://"),
    ("sqlite:///folder/", "names a folder"),
    ("sqlite:///jobs.db?durability=none", "durability must be one of full, normal"),
    ("sqlite:///jobs.db?durability", "form name=value"),
    ("sqlite:///jobs.db?mode=rw", "no option 'mode'"),
    ("sqlite:///jobs.db?busy_timeout_s=soon", "must be a number of seconds"),
    ("sqlite:///jobs.db?busy_timeout_s=-1", "between 0 and"),
    ("sqlite:///jobs.db?busy_timeout_s=nan", "between 0 and"),
    ("sqlite:///jobs.db?busy_timeout_s=1&busy_timeout_s=2", "given twice"),
    ("sqlite:///jobs.db#part", "%23"),
    ("sqlite:///jo%00bs.db", "names no file"),
    ("SQLITE:///jobs.db", "is not a store URL"),
    (" sqlite:///jobs.db", "is not a store URL"),
    ("memory:", "is not a store URL"),
    ("memory://name", "is not a store URL"),
    ("postgresql://user:secret@host:port/db", "not a store URL"),
    ("postgresql://user:secret@host/db?schema=Jobs%3B", "schema must be"),
    ("postgresql://user:secret@host/db?timeout=60", "timeout must be"),
    ("postgresql://user:secret@host/db?pgbouncer=maybe", "pgbouncer must be"),
    ("mongodb://user:secret@host/db?timeout=never", "timeout must be"),
    ("redis://:secret@host?app=a{b}", "app must be"),
    ("redis://:secret@host?connections=0", "connections must be"),
    ("redis://:secret@host?durability=perhaps", "durability must be"),
    ("mysql://root:secret@host/db", "is not a store URL"),
    ("kafka://host", "is not a store URL"),
    ("http://host/jobs.db", "is not a store URL"),
    ("file:///jobs.db", "is not a store URL"),
    ("://", "is not a store URL"),
    ("\ud800", "is not a store URL"),
    ("x" * 100_000, "is not a store URL"),
]


@pytest.mark.parametrize("url, words", MALFORMED, ids=[url.encode("ascii", "replace").decode()[:40] or "empty" for url, _ in MALFORMED])
def test_a_malformed_url_is_refused_when_the_app_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, words: str) -> None:
    """The message shows a right form and no secret, can be printed, and no file is made."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadSetting) as caught:
        Mulligan(url)
    message = str(caught.value)
    assert words in message
    assert "sqlite:///" in message or "memory://" in message or "must be" in message
    assert "secret" not in message
    assert len(message) < 1_000
    message.encode()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", [5, b"memory://", ["memory://"], Path("jobs.db")])
def test_a_url_is_a_text(url: object) -> None:
    """A path, bytes or anything else is refused with the right forms."""
    with pytest.raises(BadSetting, match="must be a text such as memory://"):
        Mulligan(url)  # type: ignore[arg-type]


async def refused(path: Path, error: type[MulliganError], words: str) -> None:
    """Opening this file as a store raises this error, early and late alike, on every try."""
    app = Mulligan(f"sqlite:///{path}")
    app.declare("work")
    for call in (app.open, lambda: app.enqueue("work"), app.status, app.worker().start):
        with pytest.raises(MulliganError) as caught:
            await call()
        assert type(caught.value) is error, repr(caught.value)
        assert words in str(caught.value)
        assert path.name in str(caught.value) or str(path.parent) in str(caught.value)
    await app.close()


async def test_a_missing_folder(tmp_path: Path) -> None:
    """It is named, with the command that makes it; none is made by itself."""
    await refused(tmp_path / "no" / "such" / "jobs.db", BadSetting, "create it first (mkdir -p")
    assert list(tmp_path.iterdir()) == []


async def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    """A path below a regular file cannot be; root or not."""
    (tmp_path / "file").write_text("mine")
    await refused(tmp_path / "file" / "jobs.db", BadSetting, "does not exist")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere; the next test shows the same without rights")
async def test_a_read_only_folder(tmp_path: Path) -> None:
    """A folder this user may not write in is refused with what to change."""
    tmp_path.chmod(0o500)
    try:
        await refused(tmp_path / "jobs.db", BadSetting, "right to write")
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc is a folder of Linux where nobody may make a file")
async def test_a_folder_where_nobody_may_write() -> None:
    """Not even the superuser can make a file there; the refusal says so."""
    await refused(Path("/proc/jobs.db"), BadSetting, "no file can be made in /proc")


async def test_a_folder_as_database(tmp_path: Path) -> None:
    """The message gives an example of a file in it."""
    await refused(tmp_path, BadSetting, "is a folder; give the path of a file in it")
    with pytest.raises(BadSetting, match="is a folder"):
        await pending_migrations(f"sqlite:///{tmp_path}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"Dear diary,\n" * 500, b"\0" * 8_192, b"SQLite format 3\0" + b"\xff" * 4_096, b"xy"])
async def test_a_file_that_is_no_database(tmp_path: Path, content: bytes) -> None:
    """It is refused and not changed by a byte."""
    path = tmp_path / "diary.txt"
    path.write_bytes(content)
    await refused(path, BadSetting, "is not a SQLite database; choose another path")
    assert path.read_bytes() == content


async def test_an_empty_file_is_a_new_database(tmp_path: Path) -> None:
    """A file of no bytes, as `touch` makes it, is taken over."""
    (tmp_path / "jobs.db").touch()
    async with Mulligan(f"sqlite:///{tmp_path}/jobs.db") as app:
        assert (await app.status()).queues == []


def change_schema(path: Path, change: Callable[[sqlite3.Connection], object]) -> None:
    """Alters a closed store's file by hand."""
    connection = sqlite3.connect(path)
    with connection:
        change(connection)
    connection.close()


async def make_file(path: Path) -> str:
    """A store with one job; the job's id."""
    async with Mulligan(f"sqlite:///{path}") as app:
        app.declare("work")
        return (await app.enqueue("work")).id


async def test_a_database_of_a_newer_schema(tmp_path: Path) -> None:
    """A file that a newer version has migrated is refused and left alone; taken back, its jobs are there."""
    path = tmp_path / "jobs.db"
    job_id = await make_file(path)
    change_schema(path, lambda db: db.execute("INSERT INTO mulligan_migrations VALUES (9999, 'of the future', 'x', 0)"))
    app = Mulligan(f"sqlite:///{path}")
    for call in (app.open, app.status, app.worker().start):
        with pytest.raises(SchemaMismatch, match="has schema 9999, .* upgrade mulligan"):
            await call()
    change_schema(path, lambda db: db.execute("DELETE FROM mulligan_migrations WHERE number = 9999"))
    async with app:
        assert (await app.get(job_id)).status == "pending"


async def test_a_migration_that_was_edited(tmp_path: Path) -> None:
    """A schema made by other statements than ours under the same number is refused."""
    path = tmp_path / "jobs.db"
    await make_file(path)
    change_schema(path, lambda db: db.execute("UPDATE mulligan_migrations SET checksum = 'other'"))
    with pytest.raises(SchemaMismatch, match="applied in another form"):
        await Mulligan(f"sqlite:///{path}").open()


async def test_a_locked_file_is_unavailable_for_now(tmp_path: Path) -> None:
    """While another connection holds the write lock a write says who is in the way, that it may be repeated, and then succeeds."""
    path = tmp_path / "jobs.db"
    await make_file(path)
    app = Mulligan(f"sqlite:///{path}?busy_timeout_s=0.05")
    app.declare("work")
    await app.open()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        with pytest.raises(StoreUnavailable, match="another connection holds its write lock") as caught:
            await app.enqueue("work")
        assert caught.value.retryable
        assert (await app.status())["default"].ready == 1  # reading goes on
    finally:
        other.close()
    await app.enqueue("work")
    assert (await app.status())["default"].ready == 2
    await app.close()


async def test_a_locked_new_file_cannot_be_opened_for_now(tmp_path: Path) -> None:
    """Opening a file that somebody else is writing into fails for now, not for good."""
    path = tmp_path / "jobs.db"
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    app = Mulligan(f"sqlite:///{path}?busy_timeout_s=0.05")
    try:
        with pytest.raises(StoreUnavailable, match="lock"):
            await app.open()
    finally:
        other.close()
    async with app:
        assert (await app.status()).queues == []


async def test_a_file_deleted_under_an_open_app(tmp_path: Path) -> None:
    """What is written into a file that is gone is lost, so that is refused at once with what to do; opened again, it works."""
    path = tmp_path / "jobs.db"
    app = Mulligan(f"sqlite:///{path}")
    app.declare("work")
    await app.enqueue("work")
    for name in os.listdir(tmp_path):
        (tmp_path / name).unlink()
    with pytest.raises(StoreUnavailable, match="was deleted while it was open"):
        await app.enqueue("work")
    await app.close()
    await app.enqueue("work")
    assert (await app.status())["default"].ready == 1
    await app.close()
