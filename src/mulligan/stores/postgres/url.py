"""The URL of a PostgreSQL store: postgresql://user:password@host:5432/database, with options such as ?schema=mulligan."""

from __future__ import annotations

from typing import cast
from urllib.parse import parse_qsl, unquote, urlsplit

from mulligan.core.clock import Clock
from mulligan.core.errors import BadSetting, shown
from mulligan.stores.network.options import CONNECTIONS, CONNECTIONS_MAX, TIMEOUT_MAX_S, TIMEOUT_S, split_options
from mulligan.stores.postgres.database import PoolerMode, Target
from mulligan.stores.postgres.store import PostgresStore

DEFAULT_SCHEMA = "mulligan"
OPTIONS = ("schema", "connections", "timeout", "pgbouncer")
# What the driver reads by itself.
DRIVER_OPTIONS = (
    "host",
    "port",
    "user",
    "password",
    "dbname",
    "database",
    "passfile",
    "service",
    "sslmode",
    "sslcert",
    "sslkey",
    "sslrootcert",
    "sslcrl",
    "sslpassword",
    "sslnegotiation",
    "ssl_min_protocol_version",
    "ssl_max_protocol_version",
    "target_session_attrs",
    "krbsrvname",
    "gsslib",
)


def from_url(url: str, clock: Clock | None = None) -> PostgresStore:
    """The store a URL stands for, not yet opened; BadSetting if it stands for none."""
    target, public = target_of(url), shown_url(url)
    return PostgresStore(public if target.schema == DEFAULT_SCHEMA else f"{public}?schema={target.schema}", target, clock=clock)


def target_of(url: str) -> Target:
    """Where a URL leads, checked as far as that is possible without a server."""
    public = shown_url(url)
    options = split_options(url, OPTIONS, public)
    parts = urlsplit(options.driver_url)
    given = dict(parse_qsl(parts.query))
    for name in given:
        if name not in DRIVER_OPTIONS:
            raise BadSetting(
                f"{public}: there is no option {shown(name)}; there are {', '.join(OPTIONS)}, and of the driver {', '.join(DRIVER_OPTIONS)}"
            )
    return Target(
        dsn=options.driver_url,
        where=f"PostgreSQL at {parts.hostname or given.get('host', 'localhost')}:{parts.port or given.get('port', 5432)}",
        schema=options.name("schema", DEFAULT_SCHEMA),
        timeout_s=options.seconds("timeout", TIMEOUT_S, TIMEOUT_MAX_S),
        connections=options.number("connections", CONNECTIONS, CONNECTIONS_MAX),
        pooler=cast(PoolerMode, options.one_of("pgbouncer", ("auto", "on", "off"))),
    )


def shown_url(url: str) -> str:
    """The URL without what may be secret: everything before the host, and the options after it."""
    before, _, rest = url.partition("://")
    place = rest.rpartition("@")[2] if "@" in rest else rest
    place = unquote(place.partition("?")[0].partition("#")[0])
    if "@" in rest and "?" in rest.rpartition("@")[0]:
        return f"{before}://***"  # an unescaped question mark in a password; nothing after it is safe to show
    return f"{before}://***@{place}" if "@" in rest else f"{before}://{place}"
