"""A look creates nothing, and says clearly why it cannot look."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tests.builders import fresh_id
from tests.cli.conftest import Run, Shop

ID = fresh_id()
LOOKING = [
    ["status"],
    ["jobs"],
    ["show", ID],
    ["why", ID],
    ["requeue", ID],
    ["cancel", ID],
    ["pause", "default"],
    ["resume", "default"],
    ["configure"],
    ["configure", "default", "--claim", "fifo"],
    ["breakers"],
    ["breakers", "open", "stripe"],
    ["events"],
]
EVERY = pytest.mark.parametrize("command", LOOKING, ids=lambda command: " ".join(word for word in command if word != ID))


@EVERY
def test_a_missing_file_is_not_created(run: Run, folder: Path, command: list[str]) -> None:
    """The file is named, the exit code is 4, the advice is a command, and the folder stays empty."""
    answer = run(*command)
    assert answer.code == 4
    assert answer.err.startswith("Error: ")
    assert len(answer.err.splitlines()) == 1
    assert "mulligan.db does not exist" in answer.err
    assert "mulligan migrate" in answer.err
    assert list(folder.iterdir()) == []


@EVERY
def test_a_missing_file_is_told_in_json(run: Run, folder: Path, command: list[str]) -> None:
    """With --json the error is a document on stdout, and stderr is silent."""
    answer = run(*command, "--json")
    assert answer.code == 4
    assert answer.json["error"]["type"] == "StoreUnavailable"
    assert "does not exist" in answer.json["error"]["message"]
    assert answer.err == ""
    assert list(folder.iterdir()) == []


@EVERY
def test_a_file_without_our_tables_is_not_changed(run: Run, folder: Path, command: list[str]) -> None:
    """A database of somebody else is left as it is; the exit code is 4."""
    with sqlite3.connect(folder / "mulligan.db") as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    before = (folder / "mulligan.db").read_bytes()
    answer = run(*command)
    assert answer.code == 4
    assert "mulligan migrate" in answer.err
    assert (folder / "mulligan.db").read_bytes() == before


@EVERY
def test_a_file_that_is_no_database_is_told(run: Run, folder: Path, command: list[str]) -> None:
    """A text file under that name is a wrong setting, told in one line."""
    (folder / "mulligan.db").write_text("hello " * 1_000)
    answer = run(*command)
    assert answer.code == 2
    assert "not a SQLite database" in answer.err
    assert len(answer.err.splitlines()) == 1


def test_a_file_of_a_newer_schema_is_told(run: Run, shop: Shop) -> None:
    """A file that a newer version has used is refused with exit code 4."""
    with sqlite3.connect(shop.file) as connection:
        connection.execute("INSERT INTO mulligan_migrations VALUES (999, 'from the future', 'x', 0)")
    connection.close()
    answer = run("status", "--json")
    assert answer.code == 4
    assert answer.json["error"]["type"] == "SchemaMismatch"


@EVERY
def test_a_store_of_one_process_is_refused(run: Run, command: list[str]) -> None:
    """Nobody could share memory:// with a command."""
    answer = run(*command, "--store", "memory://")
    assert answer.code == 2
    assert "memory://" in answer.err


@pytest.mark.parametrize("url", ["nonsense", "postgresql://u:secret@host:port/db", "sqlite://x.db", "sqlite:///"])
def test_a_malformed_url_is_told(run: Run, url: str) -> None:
    """A URL that names no store is a usage error, and does not show its password."""
    answer = run("status", "--store", url)
    assert answer.code == 2
    assert answer.err.startswith("Error: ")
    assert "secret" not in answer.err


@pytest.mark.parametrize("command", ["show", "why", "requeue", "cancel"])
@pytest.mark.parametrize("job_id", [ID, "nonsense", "\x1b[31m"], ids=["unknown", "nonsense", "control character"])
def test_an_unknown_job_is_not_found(run: Run, shop: Shop, command: str, job_id: str) -> None:
    """The exit code is 3, in text and in JSON."""
    answer = run(command, job_id)
    assert answer.code == 3
    assert "no job has the id" in answer.err
    assert "\x1b" not in answer.err
    assert run(command, job_id, "--json").code == 3


@pytest.mark.parametrize("command", ["pause", "resume"])
def test_an_unknown_queue_is_not_found(run: Run, shop: Shop, command: str) -> None:
    """The exit code is 3, and the known ones are named."""
    shop.enqueue("fine", queue="billing")
    answer = run(command, "biling")
    assert answer.code == 3
    assert "billing" in answer.err


def test_the_store_comes_from_the_environment(run: Run, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """MULLIGAN_STORE is used where --store is not given, and --store wins."""
    shop.file.rename(shop.file.with_name("other.db"))
    monkeypatch.setenv("MULLIGAN_STORE", "sqlite:///other.db")
    assert run("status").code == 0
    assert run("status", "--store", "sqlite:///mulligan.db").code == 4
