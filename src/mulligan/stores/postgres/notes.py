"""Notes: small texts that all processes share, each written only over the version its writer has read."""

from __future__ import annotations

from mulligan.core.contract import Note
from mulligan.stores.postgres.database import Database

_NOTES = "SELECT key, body, version, updated_at_us FROM {s}.notes WHERE key >= $1 AND starts_with(key, $1) ORDER BY key"
_PUT = "SELECT key, body, version, updated_at_us FROM {s}.put_note($1, $2, $3, $4)"


async def notes(database: Database, prefix: str) -> list[Note]:
    """The notes whose key begins so, by key."""
    return [_note_of(*row) for row in await database.rows(_NOTES, prefix)]


async def put_note(database: Database, key: str, body: str, version: int) -> Note | None:
    """Writes a note over the version given; None if it has another one. A repeat of the last write answers it again."""
    row = await database.row(_PUT, database.now_us(), key, body, version)
    return None if row is None else _note_of(*row)


def _note_of(key: str, body: str, version: int, updated_at_us: int) -> Note:
    return Note(key=key, body=body, version=version, updated_at_us=updated_at_us)
