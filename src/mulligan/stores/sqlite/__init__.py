"""The SQLite store. Imported only when a sqlite:// URL is opened, so that others do not pay for the driver."""

from __future__ import annotations

from mulligan.stores.migration import Migration
from mulligan.stores.sqlite.migrations import migration_sql, pending_migrations
from mulligan.stores.sqlite.store import SQLiteStore
from mulligan.stores.sqlite.url import from_url
from mulligan.stores.sqlite.version import wal_reset_bug

__all__ = ["Migration", "SQLiteStore", "from_url", "migration_sql", "pending_migrations", "wal_reset_bug"]
