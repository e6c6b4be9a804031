"""The unprivileged account that PostgreSQL insists on when the tests run as root."""

from __future__ import annotations

import os
import pwd
import tempfile
from pathlib import Path
from typing import NamedTuple


class Account(NamedTuple):
    """Who a server runs as."""

    uid: int
    gid: int


def unprivileged() -> Account | None:
    """An account with a name and without rights; None if that is what we are already."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name: entry for entry in pwd.getpwall() if entry.pw_uid != 0}
    entry = known.get("nobody") or next(iter(known.values()), None)
    if entry is None:
        raise OSError("PostgreSQL does not run as root, and this system has no other account to run it as")
    return Account(entry.pw_uid, entry.pw_gid)


def reachable(folder: Path) -> bool:
    """Whether every account may pass through this folder and all those above it."""
    return all(part.is_dir() and part.stat().st_mode & 0o001 for part in [folder, *folder.parents])


def temporary_folder() -> Path:
    """Where temporary folders are made: one that the unprivileged account can reach too."""
    first = Path(tempfile.gettempdir()).resolve()
    if os.geteuid() != 0:
        return first
    for folder in (first, Path("/tmp"), Path("/var/tmp")):
        if reachable(folder):
            return folder
    raise OSError(f"an unprivileged account cannot reach {first}; set TMPDIR to a folder everybody may pass through")
