"""Our own options in a store's URL. What is not ours belongs to the driver and stays in the URL."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from mulligan.core.errors import BadSetting, shown

TIMEOUT_S, TIMEOUT_MAX_S = 10.0, 14.0  # silence is to be noticed within fifteen seconds
CONNECTIONS, CONNECTIONS_MAX = 8, 200
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,47}")


class Options(NamedTuple):
    """A URL for the driver, and what was asked of us in it."""

    driver_url: str
    given: Mapping[str, str]

    def seconds(self, name: str, default: float, most: float) -> float:
        """A duration."""
        text = self.given.get(name, str(default))
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0.1 <= value <= most:
            raise BadSetting(f"{name} must be a number of seconds between 0.1 and {most:g}, not {shown(text)}")
        return value

    def number(self, name: str, default: int, most: int) -> int:
        """A number of things, at least one."""
        text = self.given.get(name, str(default))
        if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= most:
            raise BadSetting(f"{name} must be a whole number between 1 and {most}, not {shown(text)}")
        return int(text)

    def one_of(self, name: str, choices: tuple[str, ...]) -> str:
        """One of a few words; the first is the default."""
        text = self.given.get(name, choices[0])
        if text not in choices:
            raise BadSetting(f"{name} must be one of {', '.join(choices)}, not {shown(text)}")
        return text

    def name(self, name: str, default: str) -> str:
        """A short name: small letters, digits, _ and -, beginning with a letter."""
        text = self.given.get(name, default)
        if _NAME.fullmatch(text) is None:
            raise BadSetting(f"{name} must be 1 to 48 small letters, digits, _ or -, and begin with a letter, not {shown(text)}")
        return text


def split_options(url: str, ours: tuple[str, ...], shown_url: str) -> Options:
    """The URL without our options, and our options; `shown_url` stands for the URL in errors, because a URL may hold a password."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises for a port that is no number
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:  # whose text may quote a part of a password
        raise BadSetting(
            f"{shown_url} is not a store URL: the port must be a number, options have the form name=value, "
            "and special characters in a password are written as %40 (for @), %2F (for /), %3F (for ?)"
        ) from None
    given = [(name, value) for name, value in pairs if name in ours]
    if len(dict(given)) != len(given):
        raise BadSetting(f"{shown_url}: an option is given twice")
    theirs = urlencode([pair for pair in pairs if pair[0] not in ours])
    return Options(urlunsplit(parts._replace(query=theirs)), dict(given))
