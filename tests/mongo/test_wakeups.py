from __future__ import annotations

from mulligan.stores.mongo import MongoStore, from_url
from tests.builders import new_job


async def test_another_process_wakes_a_sleeper(url: str, store: MongoStore) -> None:
    """A job that one store takes in wakes a listener of another one, by the change stream."""
    other = from_url(url)
    await other.open()
    listener = store.listen()
    try:
        await other.insert([new_job()])
        assert await listener.wait(10)
    finally:
        listener.close()
        await other.close()
