"""Bringing a file to the schema this version speaks: numbered steps, each with a checksum, applied under the lock or not at all."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from mulligan.core.errors import BadSetting, SchemaMismatch
from mulligan.stores.migration import Migration
from mulligan.stores.sqlite.connection import opening_error
from mulligan.stores.sqlite.schema import JOURNAL, MIGRATIONS

_JOURNAL_EXISTS = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'mulligan_migrations'"
_APPLIED = "SELECT number, checksum FROM mulligan_migrations ORDER BY number"
_NOTE = "INSERT INTO mulligan_migrations (number, name, checksum, applied_at_us) VALUES (?, ?, ?, ?)"


def missing(connection: sqlite3.Connection, known: Sequence[Migration] = MIGRATIONS) -> list[Migration]:
    """The steps the file still lacks; SchemaMismatch if it has others than we know."""
    [exists] = connection.execute(_JOURNAL_EXISTS).fetchone()
    applied = dict(connection.execute(_APPLIED).fetchall()) if exists else {}
    newest = max(applied, default=0)
    if newest > known[-1].number:
        raise SchemaMismatch(
            f"the database has schema {newest}, this version of mulligan speaks {known[-1].number}: "
            "it was used by a newer version; upgrade mulligan, or give this one a file of its own"
        )
    for migration in known:
        found = applied.get(migration.number)
        if found is not None and found != migration.checksum:
            raise SchemaMismatch(
                f"migration {migration.number} ({migration.name}) was applied in another form than this version's: "
                "it was edited after its release; install the released mulligan, or restore the file from a backup"
            )
    return [migration for migration in known if migration.number not in applied]


def migrate(connection: sqlite3.Connection, now_us: int, known: Sequence[Migration] = MIGRATIONS) -> list[Migration]:
    """Applies what is missing in one transaction, and returns it. To be called under the file lock."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        steps = missing(connection, known)  # looked up again: another process may have been first
        if steps:
            connection.execute(JOURNAL)
        for step in steps:
            for statement in step.statements:
                connection.execute(statement)
            connection.execute(_NOTE, (step.number, step.name, step.checksum, now_us))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return steps


def schema_version(connection: sqlite3.Connection) -> int:
    """The number of the newest applied step; 0 for a file without our tables."""
    [exists] = connection.execute(_JOURNAL_EXISTS).fetchone()
    if not exists:
        return 0
    [newest] = connection.execute("SELECT coalesce(max(number), 0) FROM mulligan_migrations").fetchone()
    return int(newest)


def pending_migrations(path: str | Path) -> list[Migration]:
    """The steps that opening the file would apply; all of them if it does not exist. Changes nothing."""
    file = Path(path).absolute()
    if not file.exists():
        return list(MIGRATIONS)
    if file.is_dir():
        raise BadSetting(f"{file} is a folder; give the path of a file in it, for example {file / 'jobs.db'}")
    try:
        connection = sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)
        try:
            return missing(connection)
        finally:
            connection.close()
    except sqlite3.Error as problem:
        raise opening_error(problem, file) from problem


def migration_sql() -> str:
    """The whole schema as a script, for review, or to be run by hand. The store applies it by itself when it opens a file."""
    steps = "\n".join(f"{migration.sql}{_note_of(migration)}" for migration in MIGRATIONS)
    return f"{JOURNAL.strip()};\n\n{steps}"


def _note_of(step: Migration) -> str:
    """What the journal says of a step, so that a file that was made by the script is not made a second time."""
    when = "CAST(strftime('%s', 'now') AS INTEGER) * 1000000"
    values = f"{step.number}, '{step.name}', '{step.checksum}', {when}"
    return f"INSERT INTO mulligan_migrations (number, name, checksum, applied_at_us) VALUES ({values});\n"
