"""How much a server looks at: rows, documents or operations, from its own counters. For a server that nobody else uses."""

from __future__ import annotations

import asyncio

import psycopg
import pymongo
import redis

from tests.servers import Server


def examined(server: Server) -> int:
    """Everything looked at so far. PostgreSQL counts a connection's work when the connection ends, so close the store first."""
    return {"postgres": _postgres, "mongo": _mongo, "redis": _redis}[server.kind](server.url)


async def at_rest(server: Server) -> None:
    """Waits until the server has done its own work on what was stored: while PostgreSQL looks through a large table for its statistics, no
    dead entry of an index can be removed (tests/postgres/test_floors.py shows what claims do then)."""
    if server.kind != "postgres":
        return
    with psycopg.connect(server.url, autocommit=True) as connection:
        busy = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'autovacuum worker'"
        while connection.execute(busy).fetchone() != (0,):
            await asyncio.sleep(0.5)


def _postgres(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(
            "SELECT (SELECT coalesce(sum(idx_tup_read), 0) FROM pg_stat_user_indexes)"
            " + (SELECT coalesce(sum(seq_tup_read), 0) FROM pg_stat_user_tables)"
        ).fetchone()
    assert row is not None
    return int(row[0])


def _mongo(url: str) -> int:
    client: pymongo.MongoClient[dict[str, object]] = pymongo.MongoClient(url)
    try:
        looked_at = client.admin.command("serverStatus")["metrics"]["queryExecutor"]
        return max(int(looked_at["scanned"]), int(looked_at["scannedObjects"]))  # keys of indexes, and documents
    finally:
        client.close()


def _redis(url: str) -> int:
    client = redis.Redis.from_url(url)
    try:
        counted = client.info("commandstats")
        return sum(entry["calls"] for entry in counted.values())
    finally:
        client.close()
