from __future__ import annotations

import psycopg

from mulligan.stores.postgres import PostgresStore, from_url, promise
from tests.postgres.conftest import Raw
from tests.servers.postgres import Postgres


async def test_a_server_with_normal_settings_keeps_everything(store: PostgresStore) -> None:
    """An acknowledged write is on the disk; there is nothing to warn of."""
    found = await store.promise()
    assert found.durable
    assert found.weaknesses == ()
    assert "nothing" in found.loss_window
    assert "standby" in found.fail_over


async def test_weak_settings_are_named_with_their_cure() -> None:
    """A server that does not wait for its disk is found out by its real settings."""
    with Postgres(options={"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}) as server:
        store = from_url(server.url)
        await store.open()
        found = await store.promise()
        await store.close()
    assert not found.durable
    assert [weakness.what.partition(" ")[0] for weakness in found.weaknesses] == ["fsync", "synchronous_commit", "full_page_writes"]
    assert "synchronous_commit = on" in found.weaknesses[1].advice
    assert "power loss" in found.loss_window


async def test_unlogged_tables_are_found(store: PostgresStore, raw: Raw) -> None:
    """Somebody has traded the jobs for speed."""
    raw.run("ALTER TABLE {s}.history SET UNLOGGED")
    try:
        found = await store.promise()
        assert not found.durable
        assert "unlogged" in found.weaknesses[0].what
    finally:
        raw.run("ALTER TABLE {s}.history SET LOGGED")


async def test_description_names_what_blocks_vacuum(store: PostgresStore, server_url: str) -> None:
    """The facts are there, and with them the session whose old transaction keeps dead rows alive."""
    facts = await store.describe()
    assert str(facts["server"]).startswith("PostgreSQL ")
    assert (facts["fsync"], facts["hints"], facts["pooler"]) == ("on", "on", "no")
    limit = promise.BLOCKING_S
    promise.BLOCKING_S = 0
    try:
        with psycopg.connect(server_url, application_name="forgotten report") as forgotten:
            forgotten.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            forgotten.execute("SELECT 1 FROM pg_class LIMIT 1").fetchone()
            blocked = str((await store.describe())["vacuum_blocked_by"])
            assert "transaction open for" in blocked
            assert "pg_terminate_backend" in blocked
    finally:
        promise.BLOCKING_S = limit
