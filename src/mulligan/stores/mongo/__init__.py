"""The MongoDB store: a replica set, any number of processes on any number of machines."""

from __future__ import annotations

from mulligan.stores.migration import Migration
from mulligan.stores.mongo.schema import STEPS, VERSION
from mulligan.stores.mongo.store import MongoStore
from mulligan.stores.mongo.url import from_url

__all__ = ["MongoStore", "from_url", "pending_migrations"]


async def pending_migrations(url: str) -> list[Migration]:
    """The steps that opening the store would apply, all of them where there is none yet. Changes nothing."""
    version = await from_url(url).stored_version()
    return [] if version == VERSION else list(STEPS)
