"""Small changes to the URL of a store."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit


def with_option(url: str, name: str, value: str) -> str:
    """The URL with one more option, or another value of one it has."""
    parts = urlsplit(url)
    options = [*((key, text) for key, text in parse_qsl(parts.query, keep_blank_values=True) if key != name), (name, value)]
    return urlunsplit(parts._replace(query=urlencode(options)))


def without_option(url: str, name: str) -> str:
    """The URL without this option."""
    parts = urlsplit(url)
    options = [(key, text) for key, text in parse_qsl(parts.query, keep_blank_values=True) if key != name]
    return urlunsplit(parts._replace(query=urlencode(options)))


def option(url: str, name: str) -> str:
    """The value of an option; empty if the URL has none."""
    return dict(parse_qsl(urlsplit(url).query)).get(name, "")


def with_database(url: str, name: str) -> str:
    """The URL of another database. Who logs in stays known where the URL named it by its database."""
    parts = urlsplit(url)
    before = parts.path.strip("/")
    changed = urlunsplit(parts._replace(path=f"/{name}"))
    if "@" in parts.netloc and before and not option(url, "authSource"):
        return with_option(changed, "authSource", before)
    return changed


def with_address(url: str, host: str, port: int) -> str:
    """The URL with another host and port, and the same user and password."""
    parts = urlsplit(url)
    login = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{login[0]}{login[1]}{host}:{port}"))
