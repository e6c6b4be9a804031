from __future__ import annotations

import asyncio

import pytest
import redis

from mulligan.stores.network.inserts import OFTEN
from mulligan.stores.redis import RedisStore, from_url, wake
from tests.builders import new_job
from tests.servers import Proxy, Redis


async def test_a_silent_subscription_is_made_again(server: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """A subscription whose server says nothing is noticed, named, and made again; then hints of other processes come through it."""
    monkeypatch.setattr(wake, "SILENCE_S", 0.2)
    other = from_url(server.url)
    await other.open()
    with Proxy(server.url) as proxy:
        store = from_url(proxy.url_of(server.url))
        await store.open()
        listener = store.listen()
        proxy.go_silent()
        while trouble_of(store) == "":
            await listener.wait(0.05)
        proxy.speak_again()
        while trouble_of(store) != "":
            await listener.wait(0.05)
        while await listener.wait(0.05):
            pass
        await other.insert([new_job()])
        assert await listener.wait(10)
        listener.close()
        await store.close()
    await other.close()


def trouble_of(store: RedisStore) -> str:
    """Why no hints come; empty while they do."""
    return store._opened().hints.trouble


async def test_hints_stay_inside_their_app(server: Redis) -> None:
    """A hint wakes the listeners of its own app only."""
    one, two, three = (from_url(f"{server.url}?app={app}") for app in ("one", "one", "three"))
    for store in (one, two, three):
        await store.open()
    mine, others = two.listen(), three.listen()
    while not all_subscribed(server, 3):
        await mine.wait(0.05)
    for listener in (mine, others):
        while await listener.wait(0.05):
            pass
    await one.insert([new_job()])
    assert await mine.wait(10)
    assert not await others.wait(0.2)
    for store in (one, two, three):
        await store.close()


def all_subscribed(server: Redis, subscribers: int) -> bool:
    """Whether so many subscriptions stand."""
    with redis.Redis.from_url(server.url) as client:
        return sum(int(count) for _, count in client.pubsub_numsub("{one}:hints", "{three}:hints")) == subscribers


@pytest.mark.parametrize("earlier", [0, OFTEN])
async def test_a_job_after_a_pause_brings_its_hint_along(own: RedisStore, monkeypatch: pytest.MonkeyPatch, earlier: int) -> None:
    """No process has to be told of it by a call of its own, whether the job goes through the store's thread or over its loop's wire. What
    follows in the same moment, and what needs more than one script, is told as ever."""
    monkeypatch.setattr(wake, "SPACING_S", 0.0)
    for _ in range(earlier):
        await own.insert([new_job()])
    other = from_url(own.url)
    await other.open()
    listener = other.listen()
    spread: list[bool] = []
    monkeypatch.setattr(own, "_spread", lambda: _noted(spread))
    monkeypatch.setattr(own._opened().spreader, "_send", own._spread)
    while own.is_spreading or await listener.wait(0.05):
        await asyncio.sleep(0)
    spread.clear()
    await own.insert([new_job()])
    assert await listener.wait(10)
    assert spread == []
    monkeypatch.setattr(wake, "SPACING_S", 3_600)
    for jobs in ([new_job()], [new_job(unique_key="k")], [new_job(), new_job()]):
        spread.clear()
        await own.insert(jobs)
        while not spread:
            await asyncio.sleep(0)
    listener.close()
    await other.close()


async def _noted(spread: list[bool]) -> None:
    spread.append(True)
