"""What a peer on PostgreSQL has left to do, counted by a query over psycopg."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import psycopg


async def counter(url: str, query: str) -> Callable[[], Awaitable[int]]:
    """Counts again with every call, over a connection of its own."""
    connection = await psycopg.AsyncConnection.connect(url, autocommit=True)

    async def count() -> int:
        row = await (await connection.execute(query.encode())).fetchone()
        assert row is not None
        return int(row[0])

    return count
