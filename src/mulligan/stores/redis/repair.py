"""Mending what people broke: indexes that name jobs which are gone, jobs that no index names, tallies that are wrong.

Goes through all keys of the app in portions, one short script each; other clients go on meanwhile. Only the tallies need a quiet moment:
they are written anew if nothing else was written since the walk began, and otherwise left as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from mulligan.stores.redis.layout import blob, encode
from mulligan.stores.redis.rows import Bad, decoded, quarantine, read
from mulligan.stores.redis.server import Answer, Server

PORTION = 500
Call = Callable[[Callable[[], Coroutine[Any, Any, Any]]], Awaitable[Any]]  # runs it on the home loop, with a deadline and repeats


async def repair(server: Server, call: Call) -> dict[str, int]:
    """Mends everything that can be mended; says how much of what was wrong (wrong_tallies: -1 if others wrote meanwhile)."""
    mended: Counter[str] = Counter(missing_entries=0, wrong_entries=0, ownerless_keys=0, wrong_tallies=0, stateless_jobs=0)
    async for ids in _ids_of(server, call, b"body:"):
        mended["stateless_jobs"] += await call(partial(_quarantine_stateless, server, ids))
    began: Answer = await call(partial(server.run, "clock"))
    resting: Counter[bytes] = Counter()
    async for ids in _ids_of(server, call, b"state:"):
        answer: Answer = await call(partial(server.run, "repair", _text(ids)))
        missing, ownerless, flat = answer.values
        mended["missing_entries"] += missing
        mended["ownerless_keys"] += ownerless
        resting.update(dict(zip(flat[::2], flat[1::2], strict=True)))
    for key in await _indexes(server, call):
        async for found in _scan(call, partial(_zscan, server, key)):
            answer = await call(partial(server.run, "weed", key, _text([member for member, _ in found])))
            mended["wrong_entries"] += answer.values[0]
    for key in await _keys(server, call, b"groups:"):
        async for found in _scan(call, partial(_zscan, server, key)):
            answer = await call(partial(server.run, "weed_groups", key, _text([member for member, _ in found])))
            mended["wrong_entries"] += answer.values[0]
    async for ids in _ids_of(server, call, b"receipts:"):
        mended["wrong_entries"] += (await call(partial(server.run, "weed_receipts", _text(ids)))).values[0]
    tallies = encode([value for field, jobs in resting.items() for value in (blob(field), jobs)])
    mended["wrong_tallies"] = (await call(partial(server.run, "recount", began.beat, tallies))).values[0]
    return dict(mended)


def _text(ids: list[bytes]) -> bytes:
    return encode([blob(job_id) for job_id in ids])


async def _ids_of(server: Server, call: Call, kind: bytes) -> AsyncIterator[list[bytes]]:
    """The ids of all keys of a kind, portion by portion."""
    start = server.prefix.encode() + kind
    seen: set[bytes] = set()  # a scan may show a key twice, and a tally must not count it twice
    async for keys in _scan(call, partial(_key_scan, server, start + b"*")):
        fresh = [key[len(start) :] for key in keys if key not in seen]
        seen.update(keys)
        if fresh:
            yield fresh


async def _indexes(server: Server, call: Call) -> list[bytes]:
    prefix = server.prefix.encode()
    found = {prefix + b"ids", prefix + b"leases"} | {prefix + b"finished:" + status for status in (b"done", b"failed", b"cancelled")}
    for kind in (b"due:", b"ready:", b"group:", b"waiting:", b"slots:", b"keyed:"):
        found.update(await _keys(server, call, kind))
    return sorted(found)


async def _keys(server: Server, call: Call, kind: bytes) -> set[bytes]:
    """All keys of a kind."""
    found: set[bytes] = set()
    async for keys in _scan(call, partial(_key_scan, server, server.prefix.encode() + kind + b"*")):
        found.update(keys)
    return found


async def _scan(call: Call, step: Callable[[int], Coroutine[Any, Any, tuple[int, list[Any]]]]) -> AsyncIterator[list[Any]]:
    cursor = 0
    while True:
        cursor, found = await call(partial(step, cursor))
        if found:
            yield found
        if cursor == 0:
            return


async def _key_scan(server: Server, pattern: bytes, cursor: int) -> tuple[int, list[Any]]:
    following, found = await server.client.scan(cursor, match=pattern, count=PORTION)
    return int(following), list(found)


async def _zscan(server: Server, key: bytes, cursor: int) -> tuple[int, list[Any]]:
    following, found = await server.client.zscan(key, cursor, count=PORTION)
    return int(following), list(found)


async def _quarantine_stateless(server: Server, ids: list[bytes]) -> int:
    """A body without a state can be neither claimed nor found; as a failed job it is at least seen."""
    prefix = server.prefix.encode()
    states = await server.client.mget([prefix + b"state:" + job_id for job_id in ids])
    now_us, raws = await read(server, [job_id for job_id, state in zip(ids, states, strict=True) if state is None])
    mended = 0
    for raw in raws:
        job = decoded(raw, now_us)
        if isinstance(job, Bad):
            await quarantine(server, job, now_us)
            mended += 1
    return mended
