from __future__ import annotations

from mulligan.stores.mongo import MongoStore
from mulligan.stores.mongo.promise import _of_server, _of_set
from tests.mongo.conftest import Raw


async def test_a_set_of_one_is_durable_and_has_no_fail_over(store: MongoStore) -> None:
    """A one-member set keeps what it acknowledged, and says that nobody takes over."""
    promise = await store.promise()
    assert promise.durable
    assert promise.weaknesses == ()
    assert promise.fail_over.startswith("none")
    assert "primary" in promise.clock


async def test_missing_index_is_a_weakness(store: MongoStore, raw: Raw) -> None:
    """An index that somebody removed is named."""
    raw.mulligan_jobs.drop_index("mulligan_rest")
    try:
        [weakness] = (await store.promise()).weaknesses
        assert "mulligan_rest" in weakness.what
    finally:
        raw.client.drop_database(raw.name)


def test_settings_that_break_the_promise_are_weaknesses() -> None:
    """A majority without journals, one made of arbiters, and an engine that forgets are named."""
    [journal] = _of_set({"setName": "rs0"}, {"writeConcernMajorityJournalDefault": False, "members": [{"_id": 0}]})
    assert "writeConcernMajorityJournalDefault" in journal.what
    [arbiters] = _of_set({"setName": "rs0"}, {"members": [{"_id": 0}, {"_id": 1, "arbiterOnly": True}]})
    assert "hold data" in arbiters.what
    [memory] = _of_server({"storageEngine": {"name": "inMemory"}})
    assert "inMemory" in memory.what


async def test_description_tells_what_the_server_is(store: MongoStore) -> None:
    """The facts for doctor: version, members, indexes, sizes."""
    facts = await store.describe()
    assert str(facts["server"]).startswith("MongoDB ")
    assert facts["schema_version"] == 1
    assert facts["hints"] == "on"
    assert "mulligan_due" in facts["indexes"]  # type: ignore[operator]
