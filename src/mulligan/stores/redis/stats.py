"""Counting queues without going through the jobs: by the sizes of the indexes where they wait, by tally where they rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from mulligan.core.contract import DEPTH_MAX, Pulse, QueueStats, RunningJob, Stats
from mulligan.stores.redis.layout import COUNTS, HEAD, array_of, blob_in, encode
from mulligan.stores.redis.server import Server

_counts_decoder = msgspec.msgpack.Decoder(tuple[int, ...])
_parts_decoder = msgspec.msgpack.Decoder(tuple[msgspec.Raw, msgspec.Raw, msgspec.Raw])
_head_decoder = msgspec.msgpack.Decoder(tuple[str, str, str, msgspec.Raw, msgspec.Raw, msgspec.Raw, msgspec.Raw])


async def stats(server: Server) -> Stats:
    """Every queue that has jobs or a stored setting, counted."""
    answer = await server.run("stats")
    queues: dict[str, dict[str, Any]] = {}
    for name, paused, fresh, fresh_later, retry, retry_later, done, failed, cancelled, *times in answer.values[0]:
        fresh_oldest_us, retry_oldest_us, next_due_us = (None if time_us < 0 else time_us for time_us in times)
        queues[name.decode()] = {
            "paused": bool(paused),
            "fresh_ready": fresh,
            "fresh_later": fresh_later,
            "retry_ready": retry,
            "retry_later": retry_later,
            "done": done,
            "failed": failed,
            "cancelled": cancelled,
            "oldest_ready_us": min((time_us for time_us in (fresh_oldest_us, retry_oldest_us) if time_us is not None), default=None),
            "fresh_oldest_us": fresh_oldest_us,
            "retry_oldest_us": retry_oldest_us,
            "next_due_us": next_due_us,
        }
    for name, processing, stuck, retries, job_id, lane, since_us, counts, body in answer.values[1]:
        current = RunningJob(
            job_id=job_id.decode(),
            task=_task_of(body),
            retry_count=_retries_of(counts),
            is_retry=lane == b"retry",
            since_us=since_us,
        )
        figures = {"processing": processing, "stuck": stuck, "retries_running": retries, "current_job": current}
        queues.setdefault(name.decode(), {}).update(figures)
    return Stats(now_us=answer.now_us, queues=[QueueStats(queue=name, **queues[name]) for name in sorted(queues)])


async def pulse(server: Server, queues: Sequence[str]) -> list[Pulse]:
    """How full queues are."""
    [flat] = (await server.run("pulse", encode(queues), DEPTH_MAX)).values
    figures = zip(queues, flat[::2], flat[1::2], strict=True)
    return [Pulse(queue=queue, depth=depth, oldest_us=None if oldest_us < 0 else oldest_us) for queue, depth, oldest_us in figures]


def _task_of(body: bytes) -> str:
    try:
        head = blob_in(_parts_decoder.decode(array_of(body, 3))[0])
        return _head_decoder.decode(array_of(head, len(HEAD)))[2]
    except (msgspec.DecodeError, UnicodeError):
        return ""


def _retries_of(counts: bytes) -> int:
    try:
        return sum(_counts_decoder.decode(array_of(counts, len(COUNTS)))[:2])
    except (msgspec.DecodeError, UnicodeError):
        return 0
