from __future__ import annotations

import pytest

from mulligan.core.errors import BadSetting, SchemaMismatch, StoreUnavailable
from mulligan.stores.mongo import from_url, pending_migrations
from tests.builders import new_job
from tests.mongo.conftest import Raw
from tests.servers import Mongo
from tests.servers.ports import free_port


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mongodb://host/db?w=1", "would weaken"),
        ("mongodb://host/db?journal=false", "would weaken"),
        ("mongodb://host/db?readPreference=secondary", "would weaken"),
        ("mongodb://host/db?colour=red", "there is no option 'colour'"),
        ("mongodb://host/db?timeout=15", "timeout must be"),
        ("mongodb://host/db?connections=0", "connections must be"),
        ("mongodb://host/a.b", "no name for a database"),
        ("mongodb:///db", "names no host"),
        ("mongodb://host/db?dead_letters=mulligan_jobs", "dead_letters must be"),
        ("mongodb://user:p?ss@host/db", "percent-encoded"),
    ],
)
def test_bad_url_is_refused_with_the_reason(url: str, words: str) -> None:
    """A URL that would weaken the promise, or that means nothing, is refused in words."""
    with pytest.raises(BadSetting, match=words):
        from_url(url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("mongodb://ann:secret@h1:1,h2:2/jobs?replicaSet=rs0&timeout=5", "mongodb://***@h1:1,h2:2/jobs"),
        ("mongodb://host", "mongodb://host/mulligan"),
        ("mongodb://host/?w=majority&dead_letters=dead", "mongodb://host/mulligan"),
        ("mongodb+srv://ann:secret@cluster.example.com/jobs", "mongodb+srv://***@cluster.example.com/jobs"),
    ],
)
def test_url_is_shown_without_secrets(url: str, shown: str) -> None:
    """The store's own URL has neither the password nor the options."""
    assert from_url(url).url == shown


async def test_unreachable_server_is_named() -> None:
    """Opening a store nobody answers for says where it looked and what to check; never the password."""
    port = free_port()
    store = from_url(f"mongodb://ann:secret@127.0.0.1:{port}/jobs?timeout=0.5")
    with pytest.raises(StoreUnavailable, match=f"127.0.0.1:{port}.*see whether the servers run") as caught:
        await store.open()
    assert "secret" not in str(caught.value)


async def test_standalone_server_is_refused_with_the_way_out() -> None:
    """A server that is no replica set is refused, with the words that make it one."""
    server = Mongo(alone=False)
    server.start()
    try:
        store = from_url(f"mongodb://127.0.0.1:{server.port}/jobs?directConnection=true&timeout=3")
        with pytest.raises((BadSetting, StoreUnavailable), match=r"rs.initiate|not the primary"):
            await store.open()
    finally:
        server.remove()


async def test_newer_schema_is_refused(url: str, raw: Raw) -> None:
    """A database that a newer mulligan has changed is left alone."""
    store = from_url(url)
    await store.open()
    await store.close()
    raw.mulligan_meta.update_one({"_id": "schema"}, {"$inc": {"version": 1}})
    try:
        with pytest.raises(SchemaMismatch, match="newer mulligan"):
            await store.open()
    finally:
        raw.mulligan_meta.update_one({"_id": "schema"}, {"$inc": {"version": -1}})


async def test_plan_of_migrations_changes_nothing(url: str, raw: Raw) -> None:
    """Asking what opening would do does nothing; afterwards nothing is left to do."""
    raw.client.drop_database(raw.name)
    [step] = await pending_migrations(url)
    assert "mulligan_due" in step.sql
    assert raw.list_collection_names() == []
    store = from_url(url)
    await store.open()
    await store.close()
    assert await pending_migrations(url) == []


async def test_several_open_an_empty_database_at_once(url: str, raw: Raw) -> None:
    """Whoever opens first makes the collections, and nobody stumbles over the others."""
    import asyncio

    raw.client.drop_database(raw.name)
    stores = [from_url(url) for _ in range(4)]
    await asyncio.gather(*(store.open() for store in stores))
    for store in stores:
        [answer] = await store.insert([new_job()])
        assert answer.created
    await asyncio.gather(*(store.close() for store in stores))
