"""What the SQLite library of this Python can do, and the one bug of it that we must be safe from."""

from __future__ import annotations

import sqlite3

from mulligan.core.errors import BadSetting

VERSION_MIN = (3, 37, 0)  # STRICT tables

# From 3.7.0 on, two connections that write and checkpoint at the same moment could corrupt the file through a reset WAL.
# Repaired in 3.51.3, and in these maintenance lines.
_BUG_FROM, _BUG_UNTIL = (3, 7, 0), (3, 51, 3)
_REPAIRED_LINES: dict[tuple[int, ...], tuple[int, ...]] = {(3, 50): (3, 50, 7), (3, 44): (3, 44, 6)}


def wal_reset_bug(version: tuple[int, ...]) -> bool:
    """Whether this SQLite version has the WAL-reset bug. We are safe from it all the same: see filelock.py."""
    if not _BUG_FROM <= version < _BUG_UNTIL:
        return False
    repaired = _REPAIRED_LINES.get(version[:2])
    return repaired is None or version < repaired


def check_version(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> None:
    """BadSetting if this Python's SQLite is too old."""
    if version < VERSION_MIN:
        have, need = ".".join(map(str, version)), ".".join(map(str, VERSION_MIN))
        raise BadSetting(f"this Python uses SQLite {have}, mulligan needs {need} or newer; use a newer Python, or a newer libsqlite3")
