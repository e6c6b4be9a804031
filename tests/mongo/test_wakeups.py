from __future__ import annotations

from collections.abc import Callable

import pytest

from mulligan.stores.mongo import MongoStore, from_url
from mulligan.stores.mongo.wake import BYTES_MAX, HINTS
from tests.builders import new_job
from tests.mongo.conftest import Raw

SOON_S = 10


async def test_another_process_wakes_a_sleeper(url: str, store: MongoStore) -> None:
    """A job that one store takes in wakes a listener of another one."""
    other = from_url(url)
    await other.open()
    listener = store.listen()
    try:
        await other.insert([new_job()])
        assert await listener.wait(SOON_S)
    finally:
        listener.close()
        await other.close()


async def test_sleepers_do_not_read_the_log_of_the_set(store: MongoStore, raw: Raw) -> None:
    """An open store has no cursor on the server but on the hints: one on the log would pass every write of every job."""
    everything = [{"$currentOp": {"allUsers": True, "idleCursors": True}}, {"$match": {"ns": {"$regex": f"^{raw.name}\\."}}}]
    cursors = [op["cursor"]["originatingCommand"] for op in raw.client.admin.aggregate(everything) if "cursor" in op]
    assert {command.get("find") for command in cursors} == {HINTS}


def _removed(raw: Raw) -> None:
    raw.drop_collection(HINTS)


def _plain(raw: Raw) -> None:
    raw.drop_collection(HINTS)
    raw[HINTS].insert_one({"by": "somebody"})


@pytest.mark.parametrize("damage", [_removed, _plain])
async def test_hints_come_back_after_their_collection_was_removed(
    url: str, store: MongoStore, raw: Raw, damage: Callable[[Raw], None]
) -> None:
    """Whoever listens makes the collection anew, capped, and hears others again."""
    other = from_url(url)
    await other.open()
    listener = store.listen()
    try:
        damage(raw)
        assert await listener.wait(SOON_S)  # the subscription stands again, and tells of what was missed
        while await listener.wait(0.5):
            pass
        other.announce()
        assert await listener.wait(SOON_S)
        assert raw[HINTS].options()["capped"] is True
        assert raw.command("collStats", HINTS)["maxSize"] == BYTES_MAX
    finally:
        listener.close()
        await other.close()
