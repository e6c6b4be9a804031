"""The server behind a store: its connections, and how a script is run there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import redis.asyncio as driver
from redis.exceptions import NoScriptError, RedisError

from mulligan.core.clock import Clock, system_rng
from mulligan.core.events import Event
from mulligan.stores.redis.losses import Losses
from mulligan.stores.redis.scripts import SCRIPTS
from mulligan.stores.redis.wire import Wire

SCHEMA_VERSION = 2  # of the layout of the keys


class Answer:
    """What a script answered, and the store's time at which it ran."""

    __slots__ = ("beat", "now_us", "values")

    def __init__(self, now_us: int, beat: int, values: list[Any]) -> None:
        self.now_us = now_us
        self.beat = beat
        self.values = values


class Server:
    """One app's keys on one server. Lives on the store's home loop, or where its scripts go over a wire of their own, on that one's."""

    def __init__(self, client: driver.Redis, app: str, clock: Clock | None, losses: Losses, wire: Wire | None = None) -> None:
        self.client = client
        self._send: Callable[..., Awaitable[Any]] = client.execute_command if wire is None else wire.execute_command
        self.prefix = f"{{{app}}}:"
        self.losses = losses
        self._clock = clock
        self._keys = (f"{self.prefix}epoch".encode(), f"{self.prefix}beat".encode())

    async def run(self, name: str, *args: bytes | str | int) -> Answer:
        """Runs a script. A server that has forgotten it (restart, fail-over, SCRIPT FLUSH) is told again."""
        script = SCRIPTS[name]
        known = self.losses.known
        now: bytes | int = b"" if self._clock is None else self._clock.now_us()
        try:
            reply = await self._send("EVALSHA", script.sha, 2, *self._keys, now, *args)
        except NoScriptError:
            reply = await self._send("EVAL", script.source, 2, *self._keys, now, *args)
        epoch, beat, now_us, *values = reply
        self.losses.notice(known, epoch, beat, now_us)
        if self.losses.unrecorded:
            await self._record_losses()
        return Answer(now_us, beat, values)

    async def _record_losses(self) -> None:
        """Notes in the store what was found to be missing, for those who look later, and begins a new epoch where there is none."""
        losses, self.losses.unrecorded = self.losses.unrecorded, []
        for loss in losses:
            event = Event(kind="STORE_DEGRADED", at_us=loss.at_us, detail={"reason": f"data was lost: {loss.what}"})
            try:
                await self.run("lost", msgspec.json.encode(loss), msgspec.msgpack.encode(event), new_epoch(), SCHEMA_VERSION)
            except RedisError:
                # The call that noticed the loss has its answer; the note is made with the next one.
                self.losses.unrecorded.append(loss)


def new_epoch() -> str:
    """A random name."""
    return f"{system_rng().getrandbits(128):032x}"
