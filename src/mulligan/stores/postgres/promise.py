"""What the server keeps with the settings it really runs under, and what there is to know about it."""

from __future__ import annotations

from typing import Any

from mulligan.core.contract import Promise, Weakness
from mulligan.stores.postgres.database import Database

_SETTINGS = """
SELECT name, setting FROM pg_settings WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit', 'synchronous_standby_names',
  'wal_level', 'data_checksums', 'autovacuum', 'max_connections', 'server_version', 'wal_writer_delay', 'transaction_read_only')
"""
_UNLOGGED = """
SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relkind = 'r' AND c.relpersistence <> 'p'
"""
_SIZES = """
SELECT pg_total_relation_size('{s}.jobs'), c.reltuples::bigint, coalesce(s.n_dead_tup, 0), (SELECT max(number) FROM {s}.migrations)
FROM pg_class c LEFT JOIN pg_stat_user_tables s ON s.relid = c.oid WHERE c.oid = '{s}.jobs'::regclass
"""
# The transaction that keeps vacuum from removing dead rows, if it is older than a few seconds.
_BLOCKER = """
SELECT pid, application_name, state, extract(epoch FROM clock_timestamp() - coalesce(xact_start, backend_start))::bigint AS seconds
FROM pg_stat_activity WHERE (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) AND pid <> pg_backend_pid()
  AND datname = current_database()
ORDER BY age(coalesce(backend_xmin, backend_xid)) DESC, xact_start LIMIT 1
"""
BLOCKING_S = 60  # a transaction that is open for longer is worth a word


async def promise(database: Database) -> Promise:
    """What an acknowledged write survives, from the settings as this connection sees them."""
    settings = await _settings(database)
    unlogged = int((await database.row(_UNLOGGED, database.schema))[0])
    standbys = settings.get("synchronous_standby_names", "")
    weak = _weaknesses(settings, unlogged)
    durable = settings["fsync"] == "on" and settings["synchronous_commit"] != "off" and not unlogged
    return Promise(
        durable=durable,
        loss_window=_loss_window(settings, unlogged),
        fail_over=_fail_over(settings, standbys),
        clock="the server's clock; clocks of workers do not matter" if database.now_us() is None else "a clock that was handed in",
        weaknesses=tuple(weak),
    )


def _loss_window(settings: dict[str, str], unlogged: int) -> str:
    if unlogged:
        return "everything in unlogged tables, at the next crash of the server"
    if settings["fsync"] != "on":
        return "anything, up to the whole database, at a power loss or a crash of the operating system (fsync is off)"
    if settings["synchronous_commit"] == "off":
        return "the last moments before a crash of the server: about three times wal_writer_delay (synchronous_commit is off)"
    return "nothing: a write is on the server's disk before it is acknowledged"


def _fail_over(settings: dict[str, str], standbys: str) -> str:
    if not standbys:
        return "without synchronous standbys, a fail-over may lose what the standby had not received yet"
    if settings["synchronous_commit"] in ("off", "local"):
        return f"synchronous_standby_names is set, but synchronous_commit = {settings['synchronous_commit']} does not wait for them"
    return "nothing acknowledged is lost if one of the synchronous standbys takes over"


def _weaknesses(settings: dict[str, str], unlogged: int) -> list[Weakness]:
    weak = []
    if settings["fsync"] != "on":
        weak.append(
            Weakness(what="fsync is off: a power loss may destroy the database", advice="set fsync = on in postgresql.conf, and reload")
        )
    if settings["synchronous_commit"] == "off":
        weak.append(
            Weakness(
                what="synchronous_commit is off: a crash loses writes that were acknowledged",
                advice="set synchronous_commit = on for this role or database (ALTER ROLE ... SET synchronous_commit = on)",
            )
        )
    if settings["full_page_writes"] != "on":
        weak.append(Weakness(what="full_page_writes is off: a power loss may tear pages", advice="set full_page_writes = on, and reload"))
    if unlogged:
        weak.append(Weakness(what=f"{unlogged} tables are unlogged: a crash empties them", advice="ALTER TABLE ... SET LOGGED"))
    return weak


async def describe(database: Database, hints_trouble: str) -> dict[str, object]:
    """Facts for people: the server, the settings that matter, sizes, hints, and what keeps vacuum from its work."""
    settings = await _settings(database)
    size, rows, dead, version = await database.row(_SIZES)
    facts: dict[str, object] = {
        "server": f"PostgreSQL {settings['server_version']}",
        "schema": database.schema,
        "schema_version": version,
        "bytes": size,
        "rows_estimated": max(0, rows),
        "dead_rows_estimated": dead,
        **{
            name: settings[name] for name in sorted(settings) if name not in ("server_version", "wal_writer_delay", "transaction_read_only")
        },
        "connections": f"{database.pool.size} of at most {database.target.connections}",
        "pooler": "yes: no prepared statements, no LISTEN" if database.pooled else "no",
        "hints": "off behind a pooler: workers poll" if database.pooled else (f"broken: {hints_trouble}" if hints_trouble else "on"),
    }
    blocker = await database.row(_BLOCKER)
    if blocker is not None and blocker[3] is not None and blocker[3] >= BLOCKING_S:
        facts["vacuum_blocked_by"] = _blocker_in_words(blocker)
    return facts


def _blocker_in_words(blocker: Any) -> str:
    pid, application, state, seconds = blocker
    return (
        f"process {pid} ({application or 'without an application name'}, {state}) has a transaction open for {seconds} s; "
        f"dead rows pile up meanwhile: end it, or SELECT pg_terminate_backend({pid})"
    )


async def _settings(database: Database) -> dict[str, str]:
    return {row[0]: row[1] for row in await database.rows(_SETTINGS)}
