"""One connection for calls that come one after another.

The driver's client takes a connection out of its pool for each command, looks whether it still lives, and measures what it does, which
for a single insert costs more than to send it and to read the answer. A connection that broke is made anew by the next call.
"""

from __future__ import annotations

from typing import Any

import hiredis
import redis.asyncio as driver


class Wire:
    """Stands in for a client (`execute_command`, `aclose`) whose calls never overlap."""

    def __init__(self, pool: driver.ConnectionPool) -> None:
        self._connection = pool.make_connection()  # type: ignore[no-untyped-call]

    async def execute_command(self, *words: bytes | str | int) -> Any:
        """Sends a command, and gives or raises what is answered. Whatever interrupts it, the connection is closed."""
        packed = hiredis.pack_command(words)  # type: ignore[arg-type]
        await self._connection.send_packed_command(packed, check_health=False)
        return await self._connection.read_response()

    async def aclose(self) -> None:
        """Ends the connection."""
        await self._connection.disconnect()
