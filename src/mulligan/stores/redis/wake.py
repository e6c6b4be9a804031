"""Wake-up hints by PUBLISH, on a channel of the app's own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import redis.asyncio as driver
from redis.asyncio.client import PubSub

SPACING_S = 0.002  # between two hints of one process; those that come meanwhile go as one. The process hears its own, too
SILENCE_S = 5.0  # after so long without a word the server is asked whether it lives


async def subscribed(client: driver.Redis, channel: str) -> PubSub:
    """A subscription that stands: what is published from now on will be heard."""
    pubsub = client.pubsub()
    try:
        async with asyncio.timeout(SILENCE_S):
            await pubsub.subscribe(channel)
            while (message := await pubsub.get_message(timeout=SILENCE_S)) is None or message["type"] != "subscribe":
                _heed_cancel()
    except BaseException:
        await end(pubsub)
        raise
    return pubsub


async def hear(pubsub: PubSub, heard: Callable[[], None]) -> None:
    """Hears hints until the connection breaks, and ends the subscription. A server that leaves a PING without answer counts as gone."""
    asked = False
    try:
        while True:
            _heed_cancel()
            message = await pubsub.get_message(timeout=SILENCE_S)
            if message is None:
                if asked:
                    raise ConnectionError("no answer to a PING")
                async with asyncio.timeout(SILENCE_S):
                    await pubsub.ping()
                asked = True
                continue
            asked = False
            if message["type"] == "message":
                heard()
    finally:
        await end(pubsub)


async def end(pubsub: PubSub) -> None:
    """Lets go of the subscription's connection."""
    await pubsub.aclose()  # type: ignore[no-untyped-call]


def _heed_cancel() -> None:
    """The driver may swallow a cancellation that comes while it connects; without this the task would then wait on."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
