"""How much a store holds, in its own units: bytes of files, tables or memory, and rows or keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mulligan import Mulligan

SQLITE = "sqlite:///"


async def rows_of(app: Mulligan) -> int:
    """The jobs in the store, whatever their state."""
    stats = await app.store.stats()
    return sum(
        one.fresh_ready + one.fresh_later + one.retry_ready + one.retry_later + one.processing + one.done + one.failed + one.cancelled
        for one in stats.queues
    )


async def bytes_of(url: str) -> dict[str, int]:
    """What the store takes up now; for SQLite the file and its write-ahead log apart."""
    scheme = urlsplit(url).scheme.split("+")[0]
    return await _WAYS[scheme](url)


async def _sqlite(url: str) -> dict[str, int]:
    file = url.removeprefix(SQLITE).partition("?")[0]
    return {"store": _file_size(file), "wal": _file_size(f"{file}-wal")}


def _file_size(path: str) -> int:
    file = Path(path)
    return file.stat().st_size if file.exists() else 0


async def _postgres(url: str) -> dict[str, int]:
    import psycopg

    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        cursor = await connection.execute(
            "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg_toast%' AND c.relkind IN ('r', 'm')"
        )
        row: Any = await cursor.fetchone()
    return {"store": int(row[0])}


async def _mongo(url: str) -> dict[str, int]:
    from pymongo import AsyncMongoClient

    async with AsyncMongoClient(url) as client:  # type: ignore[var-annotated]
        stats = await client[urlsplit(url).path.strip("/") or "mulligan"].command("dbStats")
    return {"store": int(stats["storageSize"] + stats["indexSize"])}


async def _redis(url: str) -> dict[str, int]:
    import redis.asyncio

    client = redis.asyncio.Redis.from_url(url.split("?", maxsplit=1)[0])
    try:
        return {"store": int((await client.info("memory"))["used_memory"]), "keys": int(await client.dbsize())}
    finally:
        await client.aclose()


_WAYS = {"sqlite": _sqlite, "postgresql": _postgres, "mongodb": _mongo, "redis": _redis}
