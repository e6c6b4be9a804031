"""The Lua scripts, put together from the files in lua/. Fixed texts: no value ever becomes part of one."""

from __future__ import annotations

from hashlib import sha1
from importlib.resources import files
from typing import NamedTuple

_ROWS = ("prelude", "rows")
# Making functions takes time whenever a script runs; those that only careful claims need are made only there.
_CAREFUL = ("held_slots", "limits", "choosing", "ring", "careful")
_LOG = (*_ROWS, "log")
# The files each script is made of, in their order; the last one gives it its name.
_PARTS: tuple[tuple[str | tuple[str, ...], ...], ...] = (
    ("prelude", "clock"),
    ("prelude", "open"),
    ("prelude", "list"),
    ("prelude", "workers"),
    ("prelude", "schedule"),
    ("prelude", "pause"),
    ("prelude", "finish"),
    ("prelude", "notes"),
    ("prelude", "note"),
    (*_ROWS, "new", "insert"),
    (*_ROWS, "new", "fire"),
    (*_ROWS, "restore"),
    (*_ROWS, "asks", "lines", "take", "allot", _CAREFUL, "claim"),
    (*_ROWS, "held"),
    (*_ROWS, "held_slots", "renew"),
    (*_ROWS, "stats"),
    (*_ROWS, "pulse"),
    (*_ROWS, "prune"),
    (*_ROWS, "repair"),
    (*_ROWS, "weed"),
    (*_ROWS, "weed_groups"),
    ("prelude", "weed_receipts"),
    ("prelude", "receipts"),
    (*_ROWS, "receipt"),
    (*_ROWS, "recount"),
    (*_ROWS, "raw", "read"),
    (*_ROWS, "raw", "find"),
    (*_ROWS, "raw", "overdue"),
    (*_LOG, "whole"),
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


def _text_of(part: str | tuple[str, ...]) -> str:
    if isinstance(part, str):
        return lua(part)
    return "\n".join(("if is_careful then", *map(lua, part), "end"))


def _script_of(parts: tuple[str | tuple[str, ...], ...]) -> Script:
    source = "\n".join(map(_text_of, parts)).encode()
    return Script(source, sha1(source, usedforsecurity=False).hexdigest())


SCRIPTS: dict[str, Script] = {str(parts[-1]): _script_of(parts) for parts in _PARTS}
