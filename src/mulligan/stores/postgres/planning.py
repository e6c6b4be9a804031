"""What a migration would do, for people: asked by URL, without opening a store."""

from __future__ import annotations

from mulligan.stores.migration import Migration
from mulligan.stores.postgres.database import Database
from mulligan.stores.postgres.faults import translated
from mulligan.stores.postgres.migrations import missing, script_of
from mulligan.stores.postgres.url import target_of


async def pending_migrations(url: str) -> list[Migration]:
    """The steps that opening the store would apply. Changes nothing."""
    target = target_of(url)
    database = Database(target, None)
    try:
        await database.look()
        return await database.within(missing)
    except Exception as problem:
        raise translated(problem, target.where) from problem
    finally:
        await database.pool.close()


def migration_sql(url: str) -> str:
    """The schema as a script, under the name the URL gives it."""
    return script_of(target_of(url).schema)
