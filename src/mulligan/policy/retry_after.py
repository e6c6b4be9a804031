"""Retry-After: how long a server asks to be left alone, as the common HTTP clients carry it in their errors."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import timedelta, timezone
from typing import Any

from mulligan.core.clock import SECOND_US
from mulligan.policy.checks import SECONDS_MAX

HEADER_CHARS_MAX = 64
KINDS_MAX = 1_000
_TRICKS = ("__getattr__", "__getattribute__", "__dict__")  # by which an error may answer for what its class does not have
_bare: dict[int, tuple[type, bool]] = {}  # by identity: a stranger's type may not be hashable, or say that it equals another
_SECONDS = re.compile(r"[+-]?\d+(\.\d+)?")


def retry_after_us(error: BaseException, now_us: int) -> int | None:
    """The wait the error carries in microseconds, 0 if it lies in the past; None if it carries none that can be read."""
    if _carries_nothing(type(error)) and not error.__dict__:
        return None
    for attribute, find in _PLACES:
        try:
            holder = getattr(error, attribute, None)
            value = None if holder is None else find(holder)
        except (Exception, SystemExit):  # noqa: BLE001 - a stranger's attribute may raise anything
            value = None
        wait_us = None if value is None else _wait_us(value, now_us)
        if wait_us is not None:
            return wait_us
    return None


def _carries_nothing(kind: type) -> bool:
    """Whether errors of this type have none of the places, unless somebody gives one to an instance."""
    known = _bare.get(id(kind))
    if known is None:
        if len(_bare) >= KINDS_MAX:
            _bare.clear()
        bases = type.__dict__["__mro__"].__get__(kind)
        of_its_own = {
            name for base in bases if base is not BaseException and base is not object for name in type.__dict__["__dict__"].__get__(base)
        }
        known = _bare[id(kind)] = kind, of_its_own.isdisjoint((*_TRICKS, *(attribute for attribute, _ in _PLACES)))
    return known[1]


def span_us(seconds: object) -> int | None:
    """A span as people give it, in microseconds, cut to 0 up to a year; None if it is no finite number or timedelta."""
    if isinstance(seconds, timedelta):
        seconds = seconds.total_seconds()
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not -math.inf < seconds < math.inf:
        return None
    return round(min(max(0, seconds), SECONDS_MAX) * SECOND_US)


def _header(headers: Any) -> Any:
    """The header of a mapping, whether or not it tells capitals apart."""
    value = headers.get("Retry-After")
    return headers.get("retry-after") if value is None else value


# In this order: a plain attribute, httpx and requests, botocore, aiohttp and urllib.
_PLACES: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("retry_after", lambda wait: wait),
    ("response", lambda response: _header(response.headers)),
    ("response", lambda response: _header(response["ResponseMetadata"]["HTTPHeaders"])),
    ("headers", _header),
)


def _wait_us(value: object, now_us: int) -> int | None:
    if isinstance(value, bytes):
        value = value.decode("latin-1")
    if not isinstance(value, str):
        return span_us(value)
    text = value.strip()
    if len(text) > HEADER_CHARS_MAX:
        return None
    return span_us(float(text)) if _SECONDS.fullmatch(text) else _until_us(text, now_us)


def _until_us(date: str, now_us: int) -> int | None:
    """The time from now to an HTTP date."""
    from email.utils import parsedate_to_datetime  # rarely needed, and not cheap to import

    try:
        moment = parsedate_to_datetime(date)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=timezone.utc)
        return span_us(moment.timestamp() - now_us / SECOND_US)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
