from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from mulligan.core.clock import Clock
from mulligan.core.errors import BadSetting, SchemaMismatch, StoreRejected, StoreUnavailable
from mulligan.stores.postgres import PostgresStore, from_url, migration_sql, pending_migrations
from mulligan.stores.postgres.schema import MIGRATIONS
from tests.builders import claim, done, new_job
from tests.postgres.conftest import Raw
from tests.servers.ports import free_port

SECRET = "s3cret-word"


async def test_nobody_there_is_said_with_host_and_port() -> None:
    """A store that cannot be reached names the address and what to check, and not the password."""
    port = free_port()
    store = from_url(f"postgresql://user:{SECRET}@127.0.0.1:{port}/jobs?timeout=2")
    with pytest.raises(StoreUnavailable, match=f"127.0.0.1:{port}.*check that PostgreSQL runs there") as problem:
        await store.open()
    assert SECRET not in str(problem.value)
    assert SECRET not in store.url


async def test_no_such_database(server_url: str) -> None:
    """A missing database is a wrong setting, not a passing trouble."""
    with pytest.raises(BadSetting, match="createdb"):
        await from_url(server_url.rpartition("/")[0] + "/no_such_database").open()


async def test_no_such_user(server_url: str) -> None:
    """A user the server does not know is a wrong setting too."""
    host = server_url.rpartition("@")[2]
    with pytest.raises(BadSetting, match="user name and password"):
        await from_url(f"postgresql://nobody_at_all:{SECRET}@{host}").open()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("schema=Mixed", "schema must be"),
        ("connections=0", "connections must be"),
        ("timeout=60", "timeout must be"),
        ("pgbouncer=maybe", "pgbouncer must be one of auto, on, off"),
        ("speed=9", "there is no option 'speed'; there are schema, connections, timeout, pgbouncer"),
        ("schema=a&schema=b", "given twice"),
    ],
)
def test_bad_options_are_refused_with_words(options: str, words: str) -> None:
    """An option out of its bounds is named, and the password is not."""
    with pytest.raises(BadSetting, match=words) as problem:
        from_url(f"postgresql://user:{SECRET}@localhost/jobs?{options}")
    assert SECRET not in str(problem.value)


def test_url_shows_no_secrets() -> None:
    """The URL of a store is for logs: without user, password and options, but for a schema of another name."""
    assert from_url(f"postgresql://user:{SECRET}@db:6000/jobs?sslmode=disable&schema=x").url == "postgresql://***@db:6000/jobs?schema=x"
    assert from_url(f"postgresql://user:{SECRET}@db:6000/jobs?sslmode=disable").url == "postgresql://***@db:6000/jobs"
    assert SECRET not in from_url(f"postgresql://user:{SECRET}%3F%40@db/jobs").url


async def test_plan_and_script_of_the_migrations(make: Callable[[Clock | None], PostgresStore], server_url: str, raw: Raw) -> None:
    """What is missing is told without changing anything; the script has the schema's name in it."""
    fresh = f"{server_url}?schema=t_planned"
    raw.run("DROP SCHEMA IF EXISTS t_planned CASCADE")
    assert [step.number for step in await pending_migrations(fresh)] == [step.number for step in MIGRATIONS]
    assert raw.rows("SELECT 1 FROM pg_namespace WHERE nspname = 't_planned'") == []
    assert 'CREATE TABLE "t_planned".jobs' in migration_sql(fresh)
    store = make(None)
    await store.open()
    await store.close()


async def test_many_open_an_empty_schema_at_once(server_url: str, raw: Raw) -> None:
    """One of them migrates, the others wait for it; all can be used."""
    raw.run("DROP SCHEMA IF EXISTS t_crowd CASCADE")
    stores = [from_url(f"{server_url}?schema=t_crowd") for _ in range(6)]
    await asyncio.gather(*(store.open() for store in stores))
    assert raw.rows("SELECT number FROM t_crowd.migrations ORDER BY number") == [(step.number,) for step in MIGRATIONS]
    await stores[3].insert([new_job()])
    await asyncio.gather(*(store.close() for store in stores))
    assert await pending_migrations(f"{server_url}?schema=t_crowd") == []
    raw.run("DROP SCHEMA t_crowd CASCADE")


async def test_a_newer_or_an_edited_schema_is_refused(server_url: str, raw: Raw) -> None:
    """What another version has made is not touched."""
    url = f"{server_url}?schema=t_other"
    raw.run("DROP SCHEMA IF EXISTS t_other CASCADE")
    store = from_url(url)
    await store.open()
    await store.close()
    raw.run("INSERT INTO t_other.migrations (number, name, checksum) VALUES (99, 'future', 'x')")
    with pytest.raises(SchemaMismatch, match="upgrade mulligan"):
        await store.open()
    raw.run("DELETE FROM t_other.migrations WHERE number = 99")
    raw.run("UPDATE t_other.migrations SET checksum = 'x' WHERE number = 1")
    with pytest.raises(SchemaMismatch, match="edited after its release"):
        await store.open()
    raw.run("DROP SCHEMA t_other CASCADE")


async def test_a_role_without_the_right_to_create_can_work(store: PostgresStore, raw: Raw, url: str, schema: str) -> None:
    """On a schema that is up to date, a role needs to use it, not to create in it."""
    role = f"plain_{schema}"
    raw.run(f"DROP ROLE IF EXISTS {role}")
    raw.run(f"CREATE ROLE {role} LOGIN")
    try:
        raw.run(f"GRANT USAGE ON SCHEMA {{s}} TO {role}")
        raw.run(f"GRANT ALL ON ALL TABLES IN SCHEMA {{s}} TO {role}")
        raw.run(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {{s}} TO {role}")
        theirs = from_url(f"postgresql://{role}@{url.rpartition('@')[2]}")
        await theirs.open()
        await theirs.insert([new_job()])
        jobs = (await claim(theirs)).jobs
        assert [verdict.applied for verdict in await theirs.settle([done(job) for job in jobs])] == [True]
        await theirs.close()
        empty = from_url(f"postgresql://{role}@{url.rpartition('@')[2].partition('?')[0]}?schema=t_not_allowed")
        with pytest.raises(StoreRejected, match="permission denied"):
            await empty.open()
    finally:
        raw.run(f"DROP OWNED BY {role}")
        raw.run(f"DROP ROLE {role}")
