"""The URL of a SQLite store: sqlite:///relative.db, sqlite:////absolute/path.db, with options such as ?durability=normal."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote

from mulligan.core.clock import Clock
from mulligan.core.errors import BadSetting
from mulligan.stores.sqlite.store import SQLiteStore

_PREFIX = "sqlite:///"
_FORMS = "write sqlite:///jobs.db (relative) or sqlite:////var/lib/app/jobs.db (absolute)"
_OPTIONS = ("durability", "busy_timeout_s")


def from_url(url: str, clock: Clock | None = None) -> SQLiteStore:
    """The store a URL stands for, not yet opened; BadSetting with the right form if it stands for none."""
    place, _, query = url.partition("?")
    if place.removeprefix("sqlite://").strip("/") in ("", ":memory:"):
        raise BadSetting(f"{url!r} names no file; {_FORMS}, or memory:// for a store that lives and dies with the process")
    if not place.startswith(_PREFIX):
        raise BadSetting(f"{url!r} is not the URL of a SQLite file: three slashes come before the path; {_FORMS}")
    path = unquote(place.removeprefix(_PREFIX))
    if "#" in place:
        raise BadSetting(f"{url!r} has a # in it; write %23 if it belongs to the path")
    if path.endswith("/"):
        raise BadSetting(f"{url!r} names a folder; {_FORMS}")
    options = _options(url, query)
    timeout = options.get("busy_timeout_s", "5")
    try:
        busy_timeout_s = float(timeout)
    except ValueError:
        raise BadSetting(f"{url!r}: busy_timeout_s must be a number of seconds, not {timeout!r}") from None
    return SQLiteStore(path, clock=clock, durability=options.get("durability", "full"), busy_timeout_s=busy_timeout_s)  # type: ignore[arg-type]  # checked there


def _options(url: str, query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        raise BadSetting(f"{url!r}: the options after ? must have the form name=value, joined by &") from None
    options = dict(pairs)
    for name in options:
        if name not in _OPTIONS:
            raise BadSetting(f"{url!r}: there is no option {name!r}; there are {', '.join(_OPTIONS)}")
    if len(options) != len(pairs):
        raise BadSetting(f"{url!r}: an option is given twice")
    return options


def to_url(path: str | Path) -> str:
    """The URL of a file."""
    return _PREFIX + quote(str(path))
