"""The URL of a MongoDB store: mongodb://user:password@host1,host2/database?replicaSet=name, with options of ours and of the driver."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote

from mulligan.core.clock import Clock
from mulligan.core.errors import BadSetting, shown
from mulligan.stores.mongo.store import MongoStore
from mulligan.stores.network.options import CONNECTIONS, CONNECTIONS_MAX, TIMEOUT_MAX_S, TIMEOUT_S, split_options

OURS = ("timeout", "connections", "dead_letters")
# What the driver understands and this store has nothing to say about.
THEIRS = frozenset(
    {
        "replicaset",
        "directconnection",
        "authsource",
        "authmechanism",
        "authmechanismproperties",
        "tls",
        "ssl",
        "tlscafile",
        "tlscertificatekeyfile",
        "tlscertificatekeyfilepassword",
        "tlsallowinvalidcertificates",
        "tlsallowinvalidhostnames",
        "tlsinsecure",
        "tlscrlfile",
        "tlsdisableocspendpointcheck",
        "compressors",
        "zlibcompressionlevel",
        "appname",
        "retryreads",
        "retrywrites",
        "maxidletimems",
        "heartbeatfrequencyms",
        "servermonitoringmode",
        "srvservicename",
        "srvmaxhosts",
        "loadbalanced",
        "proxyhost",
        "proxyport",
    }
)
# What this store decides itself; the one value that changes nothing may be given.
DECIDED = {
    "w": ("majority",),
    "j": ("true",),
    "journal": ("true",),
    "readpreference": ("primary",),
    "readconcernlevel": ("local", "majority"),
}
DATABASE = "mulligan"
_FORMS = "write mongodb://host/database or mongodb://user:password@host1,host2,host3/database?replicaSet=name"
_DATABASE = re.compile(r"[A-Za-z0-9_-]{1,63}")
_COLLECTION = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}")


class _Parts(NamedTuple):
    scheme: str
    login: str  # with its @, or empty
    hosts: str
    path: str  # as given: the driver looks for the user there
    database: str
    query: str


def from_url(url: str, clock: Clock | None = None) -> MongoStore:
    """The store a URL stands for, not yet opened; BadSetting with the right form if it stands for none."""
    parts = _split(url)
    safe = f"{parts.scheme}://{'***@' if parts.login else ''}{parts.hosts}/{quote(parts.database)}"
    # The list of hosts is the driver's to read; our options are taken from a URL with one plain host.
    options = split_options(f"{parts.scheme}://host/?{parts.query}", OURS, safe)
    query = options.driver_url.partition("?")[2]
    _check_driver_options(query, safe)
    letters = options.given.get("dead_letters")
    if letters is not None and (_COLLECTION.fullmatch(letters) is None or letters.startswith(("mulligan_", "system."))):
        raise BadSetting(f"dead_letters must be the name of a collection, not beginning with mulligan_ or system., not {shown(letters)}")
    return MongoStore(
        f"{parts.scheme}://{parts.login}{parts.hosts}/{parts.path}?{query}",
        parts.database,
        shown_url=safe,
        clock=clock,
        timeout_s=options.seconds("timeout", TIMEOUT_S, TIMEOUT_MAX_S),
        connections=options.number("connections", CONNECTIONS, CONNECTIONS_MAX),
        letters=letters,
    )


def _split(url: str) -> _Parts:
    scheme, _, rest = url.partition("://")
    place, _, query = rest.partition("?")
    login, at, place = place.rpartition("@")
    hosts, _, path = place.partition("/")
    safe = f"{scheme}://{'***@' if at else ''}{hosts}"
    if "@" in query:  # an unescaped question mark in a password
        raise BadSetting(f"{scheme}://***: the user and the password must be percent-encoded; {_FORMS}")
    if not hosts or re.search(r"[\s\\#]", hosts):
        raise BadSetting(f"{safe} names no host; {_FORMS}")
    for port in re.findall(r":(\d+)(?:,|$)", hosts):
        if not 0 < int(port[:9]) < 65_536:
            raise BadSetting(f"{safe}: {port[:20]} is no port; {_FORMS}")
    database = unquote(path.strip("/")) or DATABASE
    if _DATABASE.fullmatch(database) is None:
        raise BadSetting(f"{safe}: {shown(database)} is no name for a database: up to 63 letters, digits, _ and -; {_FORMS}")
    return _Parts(scheme.lower(), login + at, hosts, path.strip("/"), database, query)


def _check_driver_options(query: str, safe: str) -> None:
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name.lower() in DECIDED:
            if value.lower() not in DECIDED[name.lower()]:
                raise BadSetting(
                    f"{safe}: {name}={shown(value)} would weaken what the store promises; leave it out. "
                    "Every write is confirmed by the majority and its journals, and every read comes from the primary"
                )
        elif name.lower() not in THEIRS:
            raise BadSetting(
                f"{safe}: there is no option {shown(name)}; ours are {', '.join(OURS)}, the driver's {', '.join(sorted(THEIRS))}"
            )
