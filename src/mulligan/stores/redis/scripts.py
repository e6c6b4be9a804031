"""The Lua scripts, put together from the files in lua/. Fixed texts: no value ever becomes part of one."""

from __future__ import annotations

from hashlib import sha1
from importlib.resources import files
from typing import NamedTuple

_ROWS = ("prelude", "rows")
_LOG = (*_ROWS, "log")
# The files each script is made of, in their order; the last one gives it its name.
_PARTS: tuple[tuple[str, ...], ...] = (
    ("prelude", "clock"),
    ("prelude", "open"),
    ("prelude", "list"),
    ("prelude", "workers"),
    ("prelude", "schedule"),
    ("prelude", "pause"),
    ("prelude", "finish"),
    (*_ROWS, "new", "insert"),
    (*_ROWS, "new", "fire"),
    (*_ROWS, "restore"),
    (*_ROWS, "lines", "allot", "claim"),
    (*_ROWS, "held"),
    (*_ROWS, "renew"),
    (*_ROWS, "stats"),
    (*_ROWS, "prune"),
    (*_ROWS, "repair"),
    (*_ROWS, "weed"),
    (*_ROWS, "recount"),
    (*_ROWS, "raw", "read"),
    (*_ROWS, "raw", "find"),
    (*_ROWS, "raw", "overdue"),
    (*_LOG, "settle"),
    (*_LOG, "cancel"),
    (*_LOG, "queue"),
    (*_LOG, "record"),
    (*_LOG, "events"),
    (*_LOG, "quarantine"),
    (*_LOG, "lost"),
)


class Script(NamedTuple):
    """A script's source, and the name under which the server knows it."""

    source: bytes
    sha: str


def lua(name: str) -> str:
    """One file of lua/."""
    return files(__package__).joinpath("lua", f"{name}.lua").read_text()


def _script_of(parts: tuple[str, ...]) -> Script:
    source = "\n".join(lua(part) for part in parts).encode()
    return Script(source, sha1(source, usedforsecurity=False).hexdigest())


SCRIPTS: dict[str, Script] = {parts[-1]: _script_of(parts) for parts in _PARTS}
