"""One finding of `mulligan doctor`."""

from __future__ import annotations

from typing import Literal

import msgspec

Level = Literal["ok", "warn", "fail"]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What was looked at, how it is, and what to do about it."""

    level: Level
    check: str
    message: str
    advice: str = ""


def ok(check: str, message: str) -> Finding:
    """Nothing to do."""
    return Finding(level="ok", check=check, message=message)


def warn(check: str, message: str, advice: str) -> Finding:
    """Worth a look."""
    return Finding(level="warn", check=check, message=message, advice=advice)


def fail(check: str, message: str, advice: str) -> Finding:
    """Work is not done, or not safe, until somebody acts."""
    return Finding(level="fail", check=check, message=message, advice=advice)
