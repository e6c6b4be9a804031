"""What processes share beyond jobs: notes, and the levels of buckets."""

from __future__ import annotations

import msgspec

from mulligan.core.contract import Note
from mulligan.core.limits import Level
from mulligan.stores.redis.layout import array_of
from mulligan.stores.redis.server import Server

_note_decoder = msgspec.msgpack.Decoder(tuple[int, int, str])
_level_decoder = msgspec.msgpack.Decoder(tuple[int, int])


async def notes(server: Server, prefix: str) -> list[Note]:
    """The notes whose key begins so, by key."""
    [flat] = (await server.run("notes", prefix)).values
    found = []
    for key, text in zip(flat[::2], flat[1::2], strict=True):
        version, updated_at_us, body = _note_decoder.decode(array_of(text, 3))
        found.append(Note(key=key.decode(), body=body, version=version, updated_at_us=updated_at_us))
    return sorted(found, key=lambda note: note.key)


async def put_note(server: Server, key: str, body: str, version: int) -> Note | None:
    """Writes a note over the version given; None if it has another one."""
    written, updated_at_us = (await server.run("note", key, body, version)).values
    return Note(key=key, body=body, version=written, updated_at_us=updated_at_us) if written else None


async def levels(server: Server) -> dict[str, Level]:
    """What is stored of every bucket."""
    [flat] = (await server.run("list", "levels")).values
    return {key.decode(): Level(*_level_decoder.decode(array_of(text, 2))) for key, text in zip(flat[::2], flat[1::2], strict=True)}
