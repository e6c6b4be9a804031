"""Counting queues without going through the jobs: by the sizes of the indexes where they wait, by tally where they rest."""

from __future__ import annotations

from typing import Any

import msgspec

from mulligan.core.contract import QueueStats, RunningJob, Stats
from mulligan.stores.redis.layout import COUNTS, HEAD, array_of, blob_in
from mulligan.stores.redis.server import Server

_counts_decoder = msgspec.msgpack.Decoder(tuple[int, ...])
_parts_decoder = msgspec.msgpack.Decoder(tuple[msgspec.Raw, msgspec.Raw, msgspec.Raw])
_head_decoder = msgspec.msgpack.Decoder(tuple[str, str, str, msgspec.Raw, msgspec.Raw, msgspec.Raw, msgspec.Raw])


async def stats(server: Server) -> Stats:
    """Every queue that has jobs or a stored setting, counted."""
    answer = await server.run("stats")
    queues: dict[str, dict[str, Any]] = {}
    for name, paused, fresh, fresh_later, retry, retry_later, done, failed, cancelled, oldest, next_due in answer.values[0]:
        queues[name.decode()] = {
            "paused": bool(paused),
            "fresh_ready": fresh,
            "fresh_later": fresh_later,
            "retry_ready": retry,
            "retry_later": retry_later,
            "done": done,
            "failed": failed,
            "cancelled": cancelled,
            "oldest_ready_us": None if oldest < 0 else oldest,
            "next_due_us": None if next_due < 0 else next_due,
        }
    for name, processing, stuck, job_id, lane, since_us, counts, body in answer.values[1]:
        current = RunningJob(
            job_id=job_id.decode(),
            task=_task_of(body),
            retry_count=_retries_of(counts),
            is_retry=lane == b"retry",
            since_us=since_us,
        )
        queues.setdefault(name.decode(), {}).update(processing=processing, stuck=stuck, current_job=current)
    return Stats(now_us=answer.now_us, queues=[QueueStats(queue=name, **queues[name]) for name in sorted(queues)])


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
