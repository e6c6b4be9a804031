"""Bringing the schema to the form this version speaks: numbered steps, each with a checksum, applied under a lock or not at all."""

from __future__ import annotations

from collections.abc import Sequence

from mulligan.core.errors import SchemaMismatch
from mulligan.stores.migration import Migration
from mulligan.stores.postgres.database import Database, Transaction, in_schema
from mulligan.stores.postgres.schema import JOURNAL, MAKE_SCHEMA, MIGRATIONS

# Asked of the catalogue itself: to_regclass may answer from a cache of this connection that is older than the lock we waited for.
_JOURNAL_EXISTS = """
SELECT EXISTS (SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = 'migrations')
"""
_APPLIED = "SELECT number, checksum FROM {s}.migrations ORDER BY number"
_NOTE = "INSERT INTO {s}.migrations (number, name, checksum) VALUES ($1, $2, $3)"
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('mulligan migrations {s}', 0))"
_UNHURRIED = "SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0"  # building an index may take long


async def missing(transaction: Transaction, known: Sequence[Migration] = MIGRATIONS) -> list[Migration]:
    """The steps the schema still lacks; SchemaMismatch if it has others than we know."""
    applied: dict[int, str] = {}
    if await transaction.value(_JOURNAL_EXISTS, transaction.schema):
        applied = {row[0]: row[1] for row in await transaction.rows(_APPLIED)}
    newest = max(applied, default=0)
    if newest > known[-1].number:
        raise SchemaMismatch(
            f"schema {transaction.schema} has version {newest}, this version of mulligan speaks {known[-1].number}: "
            "it was used by a newer version; upgrade mulligan, or give this one a schema of its own (?schema=NAME)"
        )
    for migration in known:
        found = applied.get(migration.number)
        if found is not None and found != migration.checksum:
            raise SchemaMismatch(
                f"migration {migration.number} ({migration.name}) was applied in another form than this version's: "
                "it was edited after its release; install the released mulligan, or restore the schema from a backup"
            )
    return [migration for migration in known if migration.number not in applied]


async def migrate(database: Database, known: Sequence[Migration] = MIGRATIONS) -> list[Migration]:
    """Applies what is missing in one transaction, and returns it. A role without the right to create can open what is up to date."""
    if not await database.within(lambda transaction: missing(transaction, known)):
        return []
    return await database.within(lambda transaction: _apply(transaction, known))


async def _apply(transaction: Transaction, known: Sequence[Migration]) -> list[Migration]:
    await transaction.script(_UNHURRIED)
    await transaction.rows(_LOCK)
    steps = await missing(transaction, known)  # looked up again: another process may have been first
    if steps and not await transaction.value(_JOURNAL_EXISTS, transaction.schema):
        await transaction.script(MAKE_SCHEMA)
        await transaction.script(JOURNAL)
    for step in steps:
        for statement in step.statements:
            await transaction.script(statement)
        await transaction.rows(_NOTE, step.number, step.name, step.checksum)
    return steps


def script_of(schema: str) -> str:
    """The whole schema as a script, for review or to be run by hand. The store applies it by itself when it opens."""
    steps = "\n".join(f"{migration.sql}{_note_of(migration)}" for migration in MIGRATIONS)
    return in_schema(f"{MAKE_SCHEMA};\n{JOURNAL.strip()};\n\n{steps}", schema)


def _note_of(step: Migration) -> str:
    """What the journal says of a step, so that a store that was made by the script is not made a second time."""
    return f"INSERT INTO {{s}}.migrations (number, name, checksum) VALUES ({step.number}, '{step.name}', '{step.checksum}');\n"
