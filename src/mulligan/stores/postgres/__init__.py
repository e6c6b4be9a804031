"""The PostgreSQL store. Imported only when a postgresql:// URL is opened, so that others do not pay for the driver."""

from __future__ import annotations

from mulligan.stores.migration import Migration
from mulligan.stores.postgres.planning import migration_sql, pending_migrations
from mulligan.stores.postgres.store import PostgresStore
from mulligan.stores.postgres.url import from_url

__all__ = ["Migration", "PostgresStore", "from_url", "migration_sql", "pending_migrations"]
