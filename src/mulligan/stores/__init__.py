"""The stores, by URL. The only place that names backends; a driver is imported when its URL is first asked for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from mulligan.core.clock import Clock
from mulligan.core.contract import Store
from mulligan.core.errors import BadSetting

if TYPE_CHECKING:
    from mulligan.stores.sqlite import Migration

FORMS = "memory:// or sqlite:///jobs.db (relative path) or sqlite:////var/lib/app/jobs.db (absolute path)"
_PLANNED = {
    "postgresql": "PostgreSQL",
    "postgres": "PostgreSQL",
    "mongodb": "MongoDB",
    "mongodb+srv": "MongoDB",
    "redis": "Redis",
    "rediss": "Redis",
}


def open_store(url: str, *, clock: Clock | None = None) -> Store:
    """The store a URL stands for, not yet opened: the caller awaits its open(). BadSetting if the URL names none."""
    if not isinstance(url, str):
        raise BadSetting(f"the store URL must be a text such as {FORMS}, not a {type(url).__name__}")
    scheme = url.partition(":")[0].lower()
    if url == "memory://":
        from mulligan.stores.memory import MemoryStore

        return MemoryStore(clock)
    if url.startswith("sqlite:///"):
        from mulligan.stores.sqlite import from_url

        return from_url(url, clock=clock)
    if scheme in _PLANNED and url.startswith(f"{url[: len(scheme)]}://"):
        raise BadSetting(f"{redacted(url)}: the {_PLANNED[scheme]} store is not available in this version; use {FORMS}")
    raise BadSetting(f"{repr(redacted(url))[:200]} is not a store URL; use {FORMS}")


def file_of(url: str) -> Path | None:
    """The file a store lives in; None for one that lives elsewhere. Opens nothing."""
    return getattr(open_store(url), "path", None)


def pending_migrations(url: str) -> list[Migration]:
    """The steps that opening the store would apply, all of them where there is none yet. Changes nothing."""
    path = file_of(url)
    if path is None:
        return []
    from mulligan.stores import sqlite

    return sqlite.pending_migrations(path)


def migration_sql(url: str) -> str:
    """The schema of the kind of store a URL names, as a script to read."""
    if file_of(url) is None:
        return ""
    from mulligan.stores import sqlite

    return sqlite.migration_sql()


def redacted(url: str) -> str:
    """The URL without what may be secret: everything before the host, and the options after it."""
    shown = re.sub(r"\?.*", "?***", url, flags=re.DOTALL)
    if "@" not in shown:
        # An unescaped question mark in a password would end the URL early; nothing after the scheme is then safe to show.
        return shown if "@" not in url else f"{url.partition('://')[0][:20]}://***"
    before, slashes, _ = shown.partition("://")
    return f"{before if slashes else ''}{slashes}***@{shown.rpartition('@')[2]}"
