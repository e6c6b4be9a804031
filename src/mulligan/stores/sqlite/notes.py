"""Small texts that all processes share, written only over the version that was read."""

from __future__ import annotations

from contextlib import closing

from mulligan.core.contract import Note
from mulligan.stores.sqlite.hop import Transaction

_FROM = "SELECT key, body, version, updated_at_us FROM mulligan_notes WHERE key >= ? ORDER BY key"
_ONE = "SELECT key, body, version, updated_at_us FROM mulligan_notes WHERE key = ?"
_PUT = """
INSERT INTO mulligan_notes (key, body, version, updated_at_us) VALUES (?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET body = excluded.body, version = excluded.version, updated_at_us = excluded.updated_at_us
"""


def notes(transaction: Transaction, prefix: str) -> list[Note]:
    """The notes whose key begins so, by key. They stand together in the order of the keys, which is that of their bytes."""
    found: list[Note] = []
    with closing(transaction.connection.execute(_FROM, (prefix,))) as rows:
        for row in rows:
            if not row[0].startswith(prefix):
                break
            found.append(_note_of(*row))
    return found


def put_note(transaction: Transaction, key: str, body: str, version: int) -> Note | None:
    """Writes a note over the version given; None if it has another one. A repeat answers what it wrote."""
    row = transaction.row(_ONE, (key,))
    known = None if row is None else _note_of(*row)
    if known is not None and (known.version, known.body) == (version + 1, body):
        return known
    if (0 if known is None else known.version) != version:
        return None
    note = _note_of(key, body, version + 1, transaction.now_us)
    transaction.run(_PUT, (note.key, note.body, note.version, note.updated_at_us))
    return note


def _note_of(key: str, body: str, version: int, updated_at_us: int) -> Note:
    return Note(key=key, body=body, version=version, updated_at_us=updated_at_us)
