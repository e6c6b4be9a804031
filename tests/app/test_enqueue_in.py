"""Enqueueing inside a transaction of the caller's own. The PostgreSQL drivers have tests of their own; here are the rules all share."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from mulligan import BadSetting, IllegalMove, Mulligan


def made_app(url: str) -> Mulligan:
    app = Mulligan(url)

    @app.task
    async def charge(cents: int) -> int:
        return cents

    app.state.charge = charge
    return app


def bank(path: Path) -> sqlite3.Connection:
    """A program's own connection to the database, with a table of its own."""
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE IF NOT EXISTS invoices (number INTEGER)")
    connection.commit()
    return connection


@pytest.mark.parametrize("commits", [True, False])
async def test_a_job_exists_if_and_when_the_caller_commits(tmp_path: Path, commits: bool) -> None:
    """The invoice and its job are stored together or not at all, and are invisible until then (S21)."""
    app = made_app(f"sqlite:///{tmp_path}/jobs.db")
    await app.open()
    own = bank(tmp_path / "jobs.db")
    own.execute("INSERT INTO invoices VALUES (42)")
    handle = await app.state.charge.enqueue_in(own, 42)
    [other] = await app.enqueue_in(own, [app.state.charge.job(43)])
    assert handle.created and other.created
    assert [job async for job in app.jobs()] == []
    own.commit() if commits else own.rollback()
    assert {job.id async for job in app.jobs()} == ({handle.id, other.id} if commits else set())
    assert own.execute("SELECT count(*) FROM invoices").fetchone() == (int(commits),)
    own.close()
    if commits:
        async with app.worker() as worker:
            await worker.drain()
        assert await handle.result(timeout=5) == 42
    await app.close()


def test_the_sync_form_works_in_the_callers_thread(tmp_path: Path) -> None:
    """A plain program passes its plain connection."""
    app = made_app(f"sqlite:///{tmp_path}/jobs.db")
    app.sync.status()
    own = bank(tmp_path / "jobs.db")
    own.execute("INSERT INTO invoices VALUES (42)")
    handle = app.state.charge.sync.enqueue_in(own, 42)
    [second] = app.sync.enqueue_in(own, [app.state.charge.job(43)])
    own.commit()
    own.close()
    assert handle.job().args == [42]
    assert second.job().args == [43]
    app.sync.close()


async def test_a_connection_in_no_transaction_is_refused(tmp_path: Path) -> None:
    """Without a transaction there would be nothing to join."""
    app = made_app(f"sqlite:///{tmp_path}/jobs.db")
    own = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
    with pytest.raises(IllegalMove, match="BEGIN"):
        await app.state.charge.enqueue_in(own, 42)
    own.close()
    await app.close()


async def test_a_store_that_cannot_join_says_which_can() -> None:
    """A store without SQL has no transaction to share with the caller."""
    app = made_app("memory://")
    with pytest.raises(BadSetting, match="PostgreSQL and SQLite can"):
        await app.state.charge.enqueue_in(object(), 42)
    with pytest.raises(BadSetting, match=r"task.job\("):
        await app.enqueue_in(object(), [42])  # type: ignore[list-item]
    await app.close()
