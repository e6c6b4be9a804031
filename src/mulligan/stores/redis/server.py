"""The server behind a store: its connections, and how a script is run there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import redis.asyncio as driver
from redis.exceptions import NoScriptError, RedisError

from mulligan.core.clock import Clock, system_rng
from mulligan.core.events import Event
from mulligan.stores.redis.losses import Known, Losses
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


class _Speech:
    """What is said to the server and heard from it, over whatever connection."""

    def __init__(self, app: str, clock: Clock | None, losses: Losses) -> None:
        self.prefix = f"{{{app}}}:"
        self.losses = losses
        self._clock = clock
        self._keys = (f"{self.prefix}epoch".encode(), f"{self.prefix}beat".encode())

    def _head(self) -> tuple[int | bytes, ...]:
        """The words of every script before those of its own."""
        return (2, *self._keys, b"" if self._clock is None else self._clock.now_us())

    def _heard(self, known: Known, reply: Any) -> Answer:
        """The answer of a script; what it tells of losses is compared with what was known when it was asked for."""
        epoch, beat, now_us, *values = reply
        self.losses.notice(known, epoch, beat, now_us)
        return Answer(now_us, beat, values)


class BlockingServer(_Speech):
    """One app's keys on one server, for threads that block. `send` is callable from many at once."""

    def __init__(self, send: Callable[..., Any], app: str, clock: Clock | None, losses: Losses) -> None:
        super().__init__(app, clock, losses)
        self._send = send

    def run(self, name: str, *args: bytes | str | int) -> Answer:
        """Runs a script, as Server.run does. Losses that it noticed are recorded by whoever has a Server."""
        script, known, head = SCRIPTS[name], self.losses.known, self._head()
        try:
            reply = self._send("EVALSHA", script.sha, *head, *args)
        except NoScriptError:
            reply = self._send("EVAL", script.source, *head, *args)
        return self._heard(known, reply)


class Server(_Speech):
    """One app's keys on one server. Lives on the store's home loop, or where its scripts go over a wire of their own, on that one's."""

    def __init__(self, client: driver.Redis, app: str, clock: Clock | None, losses: Losses, wire: Wire | None = None) -> None:
        super().__init__(app, clock, losses)
        self.client = client
        self._send: Callable[..., Awaitable[Any]] = client.execute_command if wire is None else wire.execute_command

    async def run(self, name: str, *args: bytes | str | int) -> Answer:
        """Runs a script. A server that has forgotten it (restart, fail-over, SCRIPT FLUSH) is told again."""
        script, known, head = SCRIPTS[name], self.losses.known, self._head()
        try:
            reply = await self._send("EVALSHA", script.sha, *head, *args)
        except NoScriptError:
            reply = await self._send("EVAL", script.source, *head, *args)
        answer = self._heard(known, reply)
        if self.losses.unrecorded:
            await self.record_losses()
        return answer

    async def record_losses(self) -> None:
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
