"""The Redis store: lists in memory, kept by an append-only file; one script per call."""

from __future__ import annotations

from mulligan.core.clock import Clock
from mulligan.stores.migration import Migration
from mulligan.stores.redis.store import RedisStore
from mulligan.stores.redis.url import parse

__all__ = ["RedisStore", "from_url", "pending_migrations"]


def from_url(url: str, clock: Clock | None = None) -> RedisStore:
    """The store of a redis:// or rediss:// URL, not yet opened."""
    return RedisStore(parse(url), clock=clock)


async def pending_migrations(url: str) -> list[Migration]:
    """The one step of making the keys that every app has, while they are not there. Changes nothing."""
    return [] if await RedisStore(parse(url)).is_set_up() else [Migration(number=1, name="epoch and layout of the keys", statements=())]
