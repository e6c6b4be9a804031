"""The stores, by URL. The only place that names backends; a driver is imported when its URL is first asked for."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from mulligan.core.clock import Clock
from mulligan.core.contract import Store
from mulligan.core.errors import BadSetting

if TYPE_CHECKING:
    from mulligan.stores.migration import Migration as Migration

FORMS = (
    "memory:// or sqlite:///jobs.db (relative path) or sqlite:////var/lib/app/jobs.db (absolute path) "
    "or postgresql://user@host/database or mongodb://host/database or redis://host"
)
# By scheme: the package of the store, the driver it imports, and the extra that installs the driver.
_SERVERS = {
    "postgresql": ("postgres", "asyncpg", "postgres"),
    "postgres": ("postgres", "asyncpg", "postgres"),
    "mongodb": ("mongo", "pymongo", "mongo"),
    "mongodb+srv": ("mongo", "pymongo", "mongo"),
    "redis": ("redis", "redis", "redis"),
    "rediss": ("redis", "redis", "redis"),
}
_PORTS = {"postgresql": 5432, "postgres": 5432, "mongodb": 27017, "redis": 6379}  # of schemes whose servers are reached without TLS

# Options of a URL that ask for TLS, as each of MongoDB's does that begins with its name, or for another server than the one it names.
_LEADS_ELSEWHERE = re.compile(
    r"(?i)(^|&)((tls|ssl_)[a-z_]*=(?!false(&|$))|ssl=(?!false(&|$))|sslmode=(require|verify)|(host|hostaddr|port|service)=|loadbalanced=true)"
)


def open_store(url: str, *, clock: Clock | None = None) -> Store:
    """The store a URL stands for, not yet opened: the caller awaits its open(). BadSetting if the URL names none."""
    if not isinstance(url, str):
        raise BadSetting(f"the store URL must be a text such as {FORMS}, not a {type(url).__name__}")
    scheme = _scheme(url)
    if url == "memory://":
        from mulligan.stores.memory import MemoryStore

        return MemoryStore(clock)
    if url.startswith("sqlite:///"):
        from mulligan.stores.sqlite import from_url

        return from_url(url, clock=clock)
    if scheme in _SERVERS and url.startswith(f"{url[: len(scheme)]}://"):
        store: Store = _backend(scheme).from_url(url, clock=clock)
        return store
    raise BadSetting(f"{repr(redacted(url))[:200]} is not a store URL; use {FORMS}")


def _backend(scheme: str) -> ModuleType:
    package, driver, extra = _SERVERS[scheme]
    try:
        return import_module(f"mulligan.stores.{package}")
    except ModuleNotFoundError as problem:
        if problem.name is None or problem.name.partition(".")[0] != driver:
            raise
        raise BadSetting(f"{scheme}:// needs the driver {driver}, which is not installed: pip install 'mulligan[{extra}]'") from None


def file_of(url: str) -> Path | None:
    """The file a store lives in; None for one that lives elsewhere. Opens nothing."""
    return getattr(open_store(url), "path", None)


def is_shared(url: str) -> bool:
    """Whether other processes can see what is in the store. Opens nothing."""
    open_store(url)
    return url != "memory://"


def address_of(url: str) -> tuple[str, int]:
    """Host and port of the one server a URL names; BadSetting where it names none, or several. Opens nothing."""
    open_store(url)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if host is None or "," in host or "%2f" in host.lower() or _scheme(url) not in _PORTS or _LEADS_ELSEWHERE.search(url.partition("?")[2]):
        raise BadSetting(f"{redacted(url)} does not name one server by host and port, without TLS")
    return host, port or _PORTS[_scheme(url)]


def at_address(url: str, host: str, port: int) -> str:
    """The URL of the same store, reached by another address of its one server."""
    parts = urlsplit(url)
    login = parts.netloc.rpartition("@")
    changed = parts._replace(netloc=f"{login[0]}{login[1]}{host}:{port}")
    if _scheme(url) == "mongodb":  # else the driver asks the server for the addresses of its set, and goes there
        options = [
            option for option in parts.query.split("&") if option and not option.lower().startswith(("replicaset=", "directconnection="))
        ]
        changed = changed._replace(query="&".join([*options, "directConnection=true"]))
    return urlunsplit(changed)


async def pending_migrations(url: str) -> list[Migration]:
    """The steps that opening the store would apply, all of them where there is none yet. Changes nothing."""
    path = file_of(url)
    if path is not None:
        from mulligan.stores import sqlite

        return sqlite.pending_migrations(path)
    if not is_shared(url):
        return []
    steps: list[Migration] = await _backend(_scheme(url)).pending_migrations(url)
    return steps


def migration_sql(url: str) -> str:
    """The schema of the kind of store a URL names, as a script to read; empty for a store that has no SQL."""
    if file_of(url) is not None:
        from mulligan.stores import sqlite

        return sqlite.migration_sql()
    if _scheme(url) not in ("postgresql", "postgres"):
        return ""
    script: str = _backend("postgresql").migration_sql(url)
    return script


def _scheme(url: str) -> str:
    return url.partition(":")[0].lower()


def redacted(url: str) -> str:
    """The URL without what may be secret: everything before the host, and the options after it."""
    shown = re.sub(r"\?.*", "?***", url, flags=re.DOTALL)
    if "@" not in shown:
        # An unescaped question mark in a password would end the URL early; nothing after the scheme is then safe to show.
        return shown if "@" not in url else f"{url.partition('://')[0][:20]}://***"
    before, slashes, _ = shown.partition("://")
    return f"{before if slashes else ''}{slashes}***@{shown.rpartition('@')[2]}"
