"""The write that takes jobs, and what a claim that is repeated finds: shared by both ways to claim (claim.py, careful.py)."""

from __future__ import annotations

from collections.abc import Sequence

from mulligan.core.clock import SECOND_US
from mulligan.core.contract import Ask, Claimed
from mulligan.stores.mongo.database import Database, Doc
from mulligan.stores.mongo.look import Seen, next_due_us
from mulligan.stores.mongo.rows import OF_WAITING, WITHOUT_HISTORY, sorted_out

CLAIM_MEMORY_US = 3_600 * SECOND_US  # how long a claim_id that took jobs is known
_FORGET_EVERY = 64  # claims; old claim ids are removed now and then


class Wish:
    """One claim as it was asked for."""

    def __init__(self, claim_id: str, owner: str, asks: Sequence[Ask], total: int, lease_us: int) -> None:
        self.claim_id = claim_id
        self.owner = owner
        self.asks = asks
        self.total = total
        self.lease_us = lease_us


def taken_values(wish: Wish, now_us: int) -> Doc:
    """What a job gets when it is taken."""
    return {
        "status": "processing",
        "claim_id": wish.claim_id,
        "lease_owner": wish.owner,
        "lease_expires_at_us": now_us + wish.lease_us,
        "updated_at_us": now_us,
    }


def taking(values: Doc) -> Doc:
    """The update that takes a job."""
    return {"$set": values, "$inc": {"fence": 1, "attempts": 1}, "$unset": dict.fromkeys(OF_WAITING, 1)}


def guarded(guard: Doc, grips: Sequence[tuple[str, int]]) -> Doc:
    """A filter for jobs that are still under the fences shown."""
    by_fence: dict[int, list[str]] = {}
    for job_id, fence in grips:
        by_fence.setdefault(fence, []).append(job_id)
    parts: list[Doc] = [{"_id": {"$in": sorted(ids)}, "fence": fence, **guard} for fence, ids in sorted(by_fence.items())]
    return parts[0] if len(parts) == 1 else {"$or": parts}


async def take(database: Database, wanted: Doc, values: Doc) -> int:
    """Takes the wanted jobs; how many of them were there."""
    return int((await database.jobs.update_many(wanted, taking(values), hint="_id_")).modified_count)


def claim_doc(wish: Wish, grips: Sequence[tuple[str, int]], now_us: int) -> Doc:
    """What is remembered of a claim: its jobs, under the fences they had before."""
    return {"_id": wish.claim_id, "at_us": now_us, "ids": [job_id for job_id, _ in grips], "fences": [fence for _, fence in grips]}


async def forget_claims(database: Database, now_us: int) -> None:
    """Now and then, removes old claim ids."""
    database.claims_made += 1
    if database.claims_made % _FORGET_EVERY == 0:
        await database.claims.delete_many({"at_us": {"$lt": now_us - CLAIM_MEMORY_US}})


async def held(database: Database, wish: Wish, known: Doc, seen: Seen) -> Claimed:
    """What an earlier claim of this id still holds. If it ended before its take was done, the rest of it is taken now.

    The fences make sure that nothing is taken twice: a job that was taken before has a higher one, whatever became of it since.
    """
    grips = list(zip(known["ids"], known["fences"], strict=False))
    if grips:
        guard = {"status": "pending", "queue": {"$nin": sorted(seen.paused)}}
        await take(database, guarded(guard, grips), taken_values(wish, seen.now_us))
    mine = {"_id": {"$in": known["ids"]}, "status": "processing", "claim_id": wish.claim_id}
    docs = {doc["_id"]: doc for doc in await database.docs(database.jobs, mine, WITHOUT_HISTORY)}
    found = [docs[job_id] for job_id in dict.fromkeys(known["ids"]) if job_id in docs]
    return await answer(database, found, seen, await due_next(database, wish, len(found), seen))


async def due_next(database: Database, wish: Wish, jobs: int, seen: Seen) -> int | None:
    """When the next job falls due. Not asked for a full claim; beside a take it costs no time, as that waits for the disk."""
    return await next_due_us(database, {ask.queue for ask in wish.asks} - seen.paused, seen.now_us) if jobs < wish.total else None


async def answer(database: Database, docs: list[Doc], seen: Seen, due_us: int | None) -> Claimed:
    """The answer of a claim that no limit and no group had a say in."""
    return Claimed(jobs=await sorted_out(database, docs, seen.now_us), now_us=seen.now_us, next_due_us=due_us)
