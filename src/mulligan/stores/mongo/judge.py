"""Whether a change applies: from what a job is now to the verdict, and what is to be written. Nothing is written here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from mulligan.core.change import Change, Dead, Lapsed, Verdict
from mulligan.core.job import STATUSES, Status
from mulligan.stores.mongo.database import Database
from mulligan.stores.mongo.write import Place, Write

KEY_TAKEN = "unique key taken"
_FIELDS = (
    "status",
    "queue",
    "priority",
    "fence",
    "generation",
    "settle_id",
    "run_at_us",
    "lease_expires_at_us",
    "cancel_requested",
    "unique_key",
    "group",
)


class State(msgspec.Struct, frozen=True):
    """A job as far as guards and answers need it."""

    status: Status
    queue: str
    priority: int
    fence: int
    generation: int
    settle_id: str | None
    run_at_us: int | None
    lease_expires_at_us: int | None
    cancel_requested: bool
    unique_key: str | None
    group: str | None


class Judged(NamedTuple):
    """A verdict, and the write it depends on. One that is not new was given before: its events are told already."""

    verdict: Verdict
    is_new: bool
    write: Write | None = None
    before: State | None = None


async def states_of(database: Database, ids: Sequence[str]) -> tuple[int, dict[str, State]]:
    """The store's time, and the jobs there are."""
    now_us = await database.now_us()
    docs = await database.jobs.find({"_id": {"$in": list(ids)}}, dict.fromkeys(_FIELDS, 1), hint="_id_").to_list()
    return now_us, {doc["_id"]: _state(doc) for doc in docs}


def _state(doc: dict[str, object]) -> State:
    """Lenient, because a document edited by hand must be refused like any other, not end the batch."""
    status = doc.get("status")
    return State(
        status=status if status in STATUSES else "failed",
        queue=str(doc.get("queue", "")),
        priority=_int(doc.get("priority")) or 0,
        fence=_int(doc.get("fence")) or 0,
        generation=_int(doc.get("generation")) or 0,
        settle_id=_text(doc.get("settle_id")),
        run_at_us=_int(doc.get("run_at_us")),
        lease_expires_at_us=_int(doc.get("lease_expires_at_us")),
        cancel_requested=doc.get("cancel_requested") is True,
        unique_key=_text(doc.get("unique_key")),
        group=_text(doc.get("group")),
    )


def _int(value: object) -> int | None:
    return int(value) if isinstance(value, int) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def judge(states: dict[str, State], change: Change, now_us: int, *, letters: bool) -> Judged:
    """The verdict on a change; the state follows it, for the changes after it."""
    state = states.get(change.job_id)
    refusal = _refusal(state, change, now_us)
    if state is None:
        return Judged(Verdict(job_id=change.job_id, applied=False, status=None, reason=refusal, at_us=now_us), is_new=True)
    if refusal and state.settle_id == change.settle_id:
        return Judged(_verdict(state, change, now_us), is_new=False)  # A repeat: it was applied before, and nothing more is written.
    if refusal:
        return Judged(_verdict(state, change, now_us, refusal), is_new=True)
    after = _after(state, change, now_us)
    states[change.job_id] = after
    return Judged(_verdict(after, change, now_us), is_new=True, write=_write(state, after, change, now_us, letters=letters), before=state)


def _refusal(state: State | None, change: Change, now_us: int) -> str:
    """Why the change's guard does not hold; empty if it does. Whether a unique key is free, the write will tell."""
    if state is None:
        return "missing"
    if isinstance(change.guard, Dead):
        return "" if state.status == "failed" and state.generation == change.guard.generation else "not failed"
    if state.status != "processing" or state.fence != change.guard.fence:
        return "stale"
    if isinstance(change.guard, Lapsed) and (state.lease_expires_at_us is None or state.lease_expires_at_us > now_us):
        return "not lapsed"
    return ""


def _after(state: State, change: Change, now_us: int) -> State:
    requeued = isinstance(change.guard, Dead)
    status = change.status
    if status == "pending" and state.cancel_requested and not requeued:
        status = "cancelled"  # Cancel wins over every way back to pending, except an operator's.
    return msgspec.structs.replace(
        state,
        status=status,
        generation=change.generation,
        settle_id=change.settle_id,
        run_at_us=now_us + change.delay_us if status == "pending" else None,
        lease_expires_at_us=None,
        cancel_requested=state.cancel_requested and not requeued,
    )


def _write(before: State, after: State, change: Change, now_us: int, *, letters: bool) -> Write:
    guard: dict[str, object] = {"status": before.status, "fence": before.fence, "generation": before.generation}
    if not isinstance(change.guard, Dead):
        guard["cancel_requested"] = True if before.cancel_requested else {"$ne": True}
    if isinstance(change.guard, Lapsed):
        guard["lease_expires_at_us"] = before.lease_expires_at_us  # a renewal in between wins
    return Write.of(
        change,
        guard=guard,
        status=after.status,
        now=now_us,
        run_at_us=after.run_at_us,
        place=Place(before.queue, before.priority, before.unique_key, before.group),
        settled_before=before.settle_id,
        letters=letters,
    )


def _verdict(state: State, change: Change, now_us: int, refusal: str = "") -> Verdict:
    return Verdict(
        job_id=change.job_id,
        applied=not refusal,
        status=state.status,
        fence=state.fence,
        run_at_us=state.run_at_us,
        reason=refusal,
        at_us=now_us,
    )
