"""Leases: lengthening them, finding those that have ended, and telling their holders to stop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from mulligan.core.change import Grip
from mulligan.core.contract import CancelAnswer, Renewal, WorkerInfo
from mulligan.core.job import Job
from mulligan.stores.redis.layout import encode
from mulligan.stores.redis.rows import raws_of, salvage
from mulligan.stores.redis.server import Server

PORTION = 500  # a script blocks the server while it runs
_ANSWERS: dict[bytes, CancelAnswer] = {
    b"pending": "cancelled",
    b"cancelled": "cancelled",
    b"processing": "requested",
    b"done": "finished",
    b"failed": "finished",
    b"missing": "missing",
}
_worker_decoder = msgspec.json.Decoder(WorkerInfo)


async def renew(server: Server, grips: Sequence[Grip], lease_us: int, worker: WorkerInfo | None) -> list[Renewal]:
    """Lengthens the leases that are still held, and notes that the worker lives."""
    renewals: list[Renewal] = []
    worker_id, told = ("", b"") if worker is None else (worker.id, msgspec.json.encode(worker))
    for at in range(0, max(1, len(grips)), PORTION):
        portion = grips[at : at + PORTION]
        flat: list[Any] = []
        for grip in portion:
            flat += (grip.job_id, grip.fence)
        answer = await server.run("renew", encode(flat), lease_us, worker_id, told)
        lost, stopping = set(answer.values[0]), set(answer.values[1])
        renewals += [
            Renewal(job_id=grip.job_id, fence=grip.fence, held=place not in lost, cancel_requested=place in stopping)
            for place, grip in enumerate(portion, 1)
        ]
    return renewals


async def workers(server: Server) -> list[WorkerInfo]:
    """The workers that reported themselves within the last hour, by id."""
    [flat] = (await server.run("workers")).values
    known = []
    for told, seen_at_us in zip(flat[::2], flat[1::2], strict=True):
        known.append(msgspec.structs.replace(_worker_decoder.decode(told), seen_at_us=seen_at_us))
    return sorted(known, key=lambda worker: worker.id)


async def overdue(server: Server, limit: int) -> list[Job]:
    """Processing jobs whose lease has ended, the oldest end first. Takes nothing over; quarantines what cannot be decoded."""
    if limit <= 0:
        return []
    answer = await server.run("overdue", min(limit, PORTION))
    return await salvage(server, raws_of(answer.values[0]), answer.now_us)


async def request_cancel(server: Server, ids: Sequence[str]) -> list[CancelAnswer]:
    """Cancels pending jobs at once, and asks the holders of processing ones to stop."""
    answers: list[CancelAnswer] = []
    for at in range(0, len(ids), PORTION):
        answer = await server.run("cancel", encode(ids[at : at + PORTION]))
        answers += [_ANSWERS[what] for what in answer.values[0]]
    return answers
