from __future__ import annotations

import asyncio

from mulligan.stores import open_store
from mulligan.stores.listener import LocalListener


async def test_closing_ends_a_running_wait() -> None:
    """A worker that stops closes its ear, and its sleep ends without a hint."""
    listener = LocalListener(lambda _: None)
    sleeper = asyncio.create_task(listener.wait(20))
    await asyncio.sleep(0)
    listener.close()
    assert not await sleeper
    assert not await listener.wait(20)


async def test_closing_the_store_ends_its_sleepers() -> None:
    """Nobody sleeps on in a closed store."""
    store = open_store("memory://")
    await store.open()
    sleeper = asyncio.create_task(store.listen().wait(20))
    await asyncio.sleep(0)
    await store.close()
    assert not await sleeper


def test_a_sleeper_whose_loop_is_gone_disturbs_nobody() -> None:
    """An event loop that was closed under a sleeper does not make the next hint fail."""
    listener = LocalListener(lambda _: None)
    loop = asyncio.new_event_loop()
    loop.close()
    listener._sleeper = (loop, asyncio.Event())
    listener.hint()
    assert asyncio.run(listener.wait(20))
