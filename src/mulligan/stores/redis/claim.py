"""Claiming: one script picks, takes and returns jobs; see lua/claim.lua."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from mulligan.core.contract import Ask, Claimed
from mulligan.core.job import Job
from mulligan.stores.redis.layout import encode
from mulligan.stores.redis.rows import decode_many, read, salvage
from mulligan.stores.redis.server import Server


async def claim(server: Server, claim_id: str, owner: str, asks: Sequence[Ask], total: int, lease_us: int) -> Claimed:
    """Takes due jobs under a lease, or returns what an earlier claim of the same id still holds."""
    answer = await server.run("claim", claim_id, owner, total, lease_us, _asks_text(tuple(asks)))
    text, found, next_due_us, bad = answer.values
    jobs = decode_many(text, found) if found else []
    if jobs is None or bad:
        jobs = await _salvaged(server, claim_id, jobs, bad, answer.now_us)
    return Claimed(jobs=jobs, now_us=answer.now_us, next_due_us=None if next_due_us < 0 else next_due_us)


@lru_cache(maxsize=64)
def _asks_text(asks: tuple[Ask, ...]) -> bytes:
    return encode([(ask.queue, ask.lane or False, ask.priority, ask.guaranteed, ask.order == "created_at") for ask in asks])


async def _salvaged(server: Server, claim_id: str, jobs: list[Job] | None, bad: Sequence[bytes], now_us: int) -> list[Job]:
    """The claim's jobs, after those that cannot be decoded were set aside."""
    _, raws = await read(server, bad)
    await salvage(server, raws, now_us)
    if jobs is not None:
        return jobs
    answer = await server.run("held", claim_id)
    _, raws = await read(server, answer.values[0])
    return await salvage(server, [raw._replace(history=()) for raw in raws], now_us)
