"""The URL of a Redis store: our own options, and what the driver understands."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

from mulligan.core.errors import BadSetting
from mulligan.stores.network.options import CONNECTIONS, CONNECTIONS_MAX, TIMEOUT_MAX_S, TIMEOUT_S, split_options

OURS = ("app", "connections", "timeout", "durability")
# What redis-py reads from a URL and a store has a use for.
THEIRS = (
    "db",
    "client_name",
    "protocol",
    "ssl_ca_certs",
    "ssl_ca_path",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_cert_reqs",
    "ssl_check_hostname",
    "ssl_min_version",
)
DEFAULT_APP = "mulligan"
DURABILITIES = ("aof", "volatile")


class Address(NamedTuple):
    """Where the store is, and what was asked of it."""

    url: str  # without secrets, and without options but for an app of another name
    where: str  # the server, in errors
    driver_url: str
    app: str
    connections: int
    timeout_s: float
    durability: str


def parse(url: str) -> Address:
    """The address a URL stands for; BadSetting if it is none."""
    shown = shown_url(url)
    options = split_options(url, OURS, shown)
    parts = urlsplit(options.driver_url)
    unknown = sorted({name for name, _ in parse_qsl(parts.query, keep_blank_values=True)} - set(THEIRS))
    if unknown:
        known = ", ".join(OURS + THEIRS)
        raise BadSetting(f"{shown}: unknown option {', '.join(unknown)[:100]}; known are {known}")
    number = parts.path.strip("/")
    if number and not (number.isascii() and number.isdigit()):
        raise BadSetting(f"{shown}: after the host comes the number of a database, as in redis://host/0")
    app = options.name("app", DEFAULT_APP)
    return Address(
        url=shown if app == DEFAULT_APP else f"{shown}?app={app}",
        where=f"Redis at {parts.hostname or 'localhost'}:{parts.port or 6379}",
        driver_url=options.driver_url,
        app=app,
        connections=options.number("connections", CONNECTIONS, CONNECTIONS_MAX),
        timeout_s=options.seconds("timeout", TIMEOUT_S, TIMEOUT_MAX_S),
        durability=options.one_of("durability", DURABILITIES),
    )


def shown_url(url: str) -> str:
    """The URL without what may be secret: user, password and options."""
    scheme, _, rest = url.partition("://")
    place = rest.rpartition("@")[2].partition("?")[0]
    return f"{scheme}://{'***@' if '@' in rest else ''}{place}"
