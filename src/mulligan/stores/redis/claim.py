"""Claiming: one script picks, takes and returns jobs; see lua/claim.lua."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from mulligan.core.contract import Ask, Claimed
from mulligan.core.job import Job
from mulligan.core.limits import Limit, Slots, matters_without_group
from mulligan.stores.redis.layout import encode
from mulligan.stores.redis.rows import decode_many, read, salvage
from mulligan.stores.redis.server import Server


async def claim(server: Server, claim_id: str, owner: str, asks: Sequence[Ask], total: int, lease_us: int) -> Claimed:
    """Takes due jobs under a lease, or returns what an earlier claim of the same id still holds."""
    text, is_limited = _asks_text(tuple(asks))
    answer = await server.run("claim", claim_id, owner, total, lease_us, text, is_limited)
    rows, found, next_due_us, bad, *careful = answer.values
    jobs = decode_many(rows, found) if found else []
    if jobs is None or bad:
        jobs = await _salvaged(server, claim_id, jobs, bad, answer.now_us)
    due_us = None if next_due_us < 0 else next_due_us
    if not careful:
        return Claimed(jobs=jobs, now_us=answer.now_us, next_due_us=due_us)
    held_back, turns, levels = careful
    return Claimed(
        jobs=jobs,
        now_us=answer.now_us,
        next_due_us=due_us,
        held_back=frozenset(queue.decode() for queue in held_back),
        turns=tuple(after.decode() for after in turns),
        levels={key.decode(): level_u for key, level_u in zip(levels[::2], levels[1::2], strict=True)},
    )


@lru_cache(maxsize=64)
def _asks_text(asks: tuple[Ask, ...]) -> tuple[bytes, int]:
    """The asks for the script, and 1 if one has a limit that is also for jobs without a group."""
    return encode([_ask_row(ask) for ask in asks]), int(any(matters_without_group(ask.limits) for ask in asks))


def _ask_row(ask: Ask) -> tuple[Any, ...]:
    row = (ask.queue, ask.lane or False, ask.priority, ask.guaranteed, ask.order == "created_at")
    return (*row, [_limit_row(limit) for limit in ask.limits], ask.after) if ask.limits or ask.after else row


def _limit_row(limit: Limit) -> tuple[Any, ...]:
    if isinstance(limit, Slots):
        return (False, limit.most, limit.lane or False, limit.by_key)
    part, value = (False if own is None else own for own in (limit.part, limit.value))
    return (limit.key, limit.rate_u, limit.burst_u, limit.ratio_u, limit.lane or False, part, value)


async def _salvaged(server: Server, claim_id: str, jobs: list[Job] | None, bad: Sequence[bytes], now_us: int) -> list[Job]:
    """The claim's jobs, after those that cannot be decoded were set aside."""
    _, raws = await read(server, bad)
    await salvage(server, raws, now_us)
    if jobs is not None:
        return jobs
    answer = await server.run("held", claim_id)
    _, raws = await read(server, answer.values[0])
    return await salvage(server, [raw._replace(history=()) for raw in raws], now_us)
