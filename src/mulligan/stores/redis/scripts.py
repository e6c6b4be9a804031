"""The Lua scripts, put together from the files in lua/. Fixed texts: no value ever becomes part of one."""

from __future__ import annotations

from hashlib import sha1
from importlib.resources import files
from typing import NamedTuple


class Late(NamedTuple):
    """A file of which one function is called, and seldom: its functions are made by the first call. To make them takes time in each run
    of a script, and a single insert needs those of rows.lua for a unique key only."""

    file: str
    function: str


Part = str | tuple[str, ...] | Late
_ROWS = ("prelude", "keys", "rows")
# Making functions takes time whenever a script runs; those that only careful claims need are made only there.
_CAREFUL = ("held_slots", "limits", "choosing", "ring", "careful")
_LOG = (*_ROWS, "log")
# The files each script is made of, in their order; the last one gives it its name.
_PARTS: tuple[tuple[Part, ...], ...] = (
    ("prelude", "clock"),
    ("prelude", "open"),
    ("prelude", "list"),
    ("prelude", "workers"),
    ("prelude", "schedule"),
    ("prelude", "pause"),
    ("prelude", "finish"),
    ("prelude", "notes"),
    ("prelude", "note"),
    ("prelude", "keys", Late("rows", "owner_of"), "new", "insert"),
    ("insert_one",),
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
    (*_LOG, "raw", "quarantine"),
    (*_LOG, "lost"),
)


class Script(NamedTuple):
    """A script's source, and the name under which the server knows it."""

    source: bytes
    sha: str


def lua(name: str) -> str:
    """One file of lua/."""
    return files(__package__).joinpath("lua", f"{name}.lua").read_text()


def _text_of(part: Part) -> str:
    if isinstance(part, str):
        return lua(part)
    if isinstance(part, Late):
        name = part.function
        made = f"local function made()\n{lua(part.file)}\nreturn {name}\nend\nlocal known"
        return f"{made}\nlocal function {name}(...)\nknown = known or made()\nreturn known(...)\nend"
    return "\n".join(("if is_careful then", *map(lua, part), "end"))


def _script_of(parts: tuple[Part, ...]) -> Script:
    source = "\n".join(map(_text_of, parts)).encode()
    return Script(source, sha1(source, usedforsecurity=False).hexdigest())


SCRIPTS: dict[str, Script] = {str(parts[-1]): _script_of(parts) for parts in _PARTS}
