"""Claiming: which jobs, in which order, and the one write that takes them.

look → remember the claim and read its jobs → take. The take is one guarded update: a job is taken only while it is pending under the
fence that was seen, so no job goes to two claimers, and a take that arrives late or twice takes nothing it should not. What was seen of a
job cannot have changed under that guard, so a take that wins all it wanted needs no second reading.

A claimer that finds all its jobs gone looks again, further down the line and at a place chosen by chance, so that many claimers do not
go on fighting for the same heads. Alone, a claimer keeps the exact order.

Claims in the order of creation need a list of due jobs in that order, and no index can have "due" in it. So such a claim first marks
due jobs, a bounded number at a time; the marked ones have an index of their own. The order is exact as long as no more than READY_MAX
jobs of a lane fell due since the last claim; beyond that, those that fell due first are marked first. A claim in the order of run_at
that meets marked jobs (the strategy of the queue was changed) serves them too, and takes the marks off again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from pymongo.errors import DuplicateKeyError

from mulligan.core.clock import SECOND_US
from mulligan.core.contract import Ask, Claimed
from mulligan.core.lending import allot
from mulligan.stores.mongo.database import Database, Doc
from mulligan.stores.mongo.look import READY_MAX, Candidate, Seen, look, mark, next_due_us, unmark
from mulligan.stores.mongo.rows import WITHOUT_HISTORY, sorted_out

CLAIM_MEMORY_US = 3_600 * SECOND_US  # how long a claim_id that took jobs is known
ROUNDS = 30  # looks of one claim, if others take away what it saw
SPREAD = 4  # after a lost round it looks so many times further, times the number of lost rounds
_FORGET_EVERY = 64  # claims; old claim ids are removed now and then


class Wish:
    """One claim as it was asked for."""

    def __init__(self, claim_id: str, owner: str, asks: Sequence[Ask], total: int, lease_us: int) -> None:
        self.claim_id = claim_id
        self.owner = owner
        self.asks = asks
        self.total = total
        self.lease_us = lease_us


async def claim(database: Database, wish: Wish, rng: random.Random) -> Claimed:
    """Takes due jobs under a lease, or finds what an earlier claim of the same id still holds."""
    if any(ask.order == "created_at" for ask in wish.asks):
        await mark(database, wish.asks)
    seen = await _look(database, wish, wish.total)
    if seen.known is not None:
        return await _held(database, wish, seen.known, seen)
    chosen = _pick(wish, seen, wish.total)
    if not chosen:
        return await _answer(database, wish, [], seen)
    remembered, docs = await asyncio.gather(_remember(database, wish, chosen, seen.now_us), _read(database, chosen))
    if not remembered:  # the same claim, twice at the same moment
        known = await database.claims.find_one({"_id": wish.claim_id})
        return await _held(database, wish, known or {"ids": [], "fences": []}, seen)
    won = await _take(database, wish, chosen, docs, seen.now_us)
    if len(won) < len(chosen):
        # Claims of one process wait for each other here, so that they have only strangers to fight.
        async with database.claiming:
            seen = await _take_more(database, wish, won, rng)
    if not won:  # a repeat may take something
        await database.claims.delete_one({"_id": wish.claim_id})
    return await _answer(database, wish, won, seen)


async def _take_more(database: Database, wish: Wish, won: list[Doc], rng: random.Random) -> Seen:
    """Looks again and again, because others took what was seen, until the claim is full or nothing is due. Adds to what was won."""
    for lost in range(1, ROUNDS):
        wanted = wish.total - len(won)
        seen = await _look(database, wish, min(wanted * SPREAD * lost, max(wanted, READY_MAX)))
        chosen = _pick(wish, seen, wanted, rng)
        if not chosen:
            break
        more = {"ids": {"$each": [one.id for one in chosen]}, "fences": {"$each": [one.fence for one in chosen]}}
        _, docs = await asyncio.gather(database.claims.update_one({"_id": wish.claim_id}, {"$push": more}), _read(database, chosen))
        new = await _take(database, wish, chosen, docs, seen.now_us)
        won += new
        if len(new) == len(chosen):
            break
    return seen


async def _look(database: Database, wish: Wish, limit: int) -> Seen:
    seen = await look(database, wish.claim_id, wish.asks, limit)
    if seen.marked and seen.known is None:
        seen = await look(database, wish.claim_id, wish.asks, limit, with_marked=True)
        await unmark(database, seen.marked)
    return seen


def _pick(wish: Wish, seen: Seen, total: int, rng: random.Random | None = None) -> list[Candidate]:
    """The jobs of a claim: each ask's guaranteed share, then what the others leave, in the order of the asks."""
    listed: set[str] = set()
    lines: list[list[Candidate]] = []
    for ask, candidates in zip(wish.asks, seen.lines, strict=True):
        # Asks may overlap. A job stands in the line of the first ask that lists it.
        line = [] if ask.queue in seen.paused else [one for one in candidates if one.id not in listed]
        if rng is not None and len(line) > total:
            line = line[rng.randrange(len(line) - total + 1) :]
        line = line[:total]
        listed.update(one.id for one in line)
        lines.append(line)
    groups = [(ask.queue, ask.lane) for ask in wish.asks]
    takes = allot(total, [ask.guaranteed for ask in wish.asks], [len(line) for line in lines], groups)
    return [one for line, take in zip(lines, takes, strict=True) for one in line[:take]]


async def _remember(database: Database, wish: Wish, chosen: Sequence[Candidate], now_us: int) -> bool:
    """Writes down what is going to be taken, before it is: a repeat must find it. False if another has this claim_id."""
    doc: Doc = {"_id": wish.claim_id, "at_us": now_us, "ids": [one.id for one in chosen], "fences": [one.fence for one in chosen]}
    try:
        await database.claims.insert_one(doc)
    except DuplicateKeyError:
        return False
    database.claims_made += 1
    if database.claims_made % _FORGET_EVERY == 0:
        await database.claims.delete_many({"at_us": {"$lt": now_us - CLAIM_MEMORY_US}})
    return True


async def _read(database: Database, chosen: Sequence[Candidate]) -> dict[str, Doc]:
    docs = await database.docs(database.jobs, {"_id": {"$in": [one.id for one in chosen]}}, WITHOUT_HISTORY)
    return {doc["_id"]: doc for doc in docs}


async def _take(database: Database, wish: Wish, chosen: Sequence[Candidate], docs: dict[str, Doc], now_us: int) -> list[Doc]:
    """Takes what is still as it was seen; the documents of the jobs that were won, in the order of the choice."""
    values = _values(wish, now_us)
    written = await _write(database, guarded({"status": "pending"}, [(one.id, one.fence) for one in chosen]), values)
    ids = [one.id for one in chosen]
    if written == len(docs) == len(ids) and all(_is_as_seen(docs[one.id], one) for one in chosen):
        return [_taken(docs[job_id], values) for job_id in ids]
    mine = {"_id": {"$in": ids}, "status": "processing", "claim_id": wish.claim_id}
    won = {doc["_id"]: doc for doc in await database.docs(database.jobs, mine, WITHOUT_HISTORY)}
    return [won[job_id] for job_id in ids if job_id in won]


def _values(wish: Wish, now_us: int) -> Doc:
    return {
        "status": "processing",
        "claim_id": wish.claim_id,
        "lease_owner": wish.owner,
        "lease_expires_at_us": now_us + wish.lease_us,
        "updated_at_us": now_us,
    }


async def _write(database: Database, wanted: Doc, values: Doc) -> int:
    """Takes the wanted jobs; how many of them were there."""
    change = {"$set": values, "$inc": {"fence": 1, "attempts": 1}, "$unset": {"run_at_us": 1, "line": 1, "fifo_line": 1}}
    return int((await database.jobs.update_many(wanted, change, hint="_id_")).modified_count)


def guarded(guard: Doc, grips: Sequence[tuple[str, int]]) -> Doc:
    """A filter for jobs that are still under the fences shown."""
    by_fence: dict[int, list[str]] = {}
    for job_id, fence in grips:
        by_fence.setdefault(fence, []).append(job_id)
    parts: list[Doc] = [{"_id": {"$in": sorted(ids)}, "fence": fence, **guard} for fence, ids in sorted(by_fence.items())]
    return parts[0] if len(parts) == 1 else {"$or": parts}


def _is_as_seen(doc: Doc, one: Candidate) -> bool:
    return doc.get("status") == "pending" and doc.get("fence") == one.fence and type(doc.get("attempts")) is int


def _taken(doc: Doc, values: Doc) -> Doc:
    doc.update(values)
    doc["fence"] += 1
    doc["attempts"] += 1
    doc.pop("run_at_us", None)
    return doc


async def _held(database: Database, wish: Wish, known: Doc, seen: Seen) -> Claimed:
    """What an earlier claim of this id still holds. If it ended before its take was done, the rest of it is taken now.

    The fences make sure that nothing is taken twice: a job that was taken before has a higher one, whatever became of it since.
    """
    grips = list(zip(known["ids"], known["fences"], strict=False))
    if grips:
        guard = {"status": "pending", "queue": {"$nin": sorted(seen.paused)}}
        await _write(database, guarded(guard, grips), _values(wish, seen.now_us))
    mine = {"_id": {"$in": known["ids"]}, "status": "processing", "claim_id": wish.claim_id}
    held = {doc["_id"]: doc for doc in await database.docs(database.jobs, mine, WITHOUT_HISTORY)}
    return await _answer(database, wish, [held[job_id] for job_id in dict.fromkeys(known["ids"]) if job_id in held], seen)


async def _answer(database: Database, wish: Wish, docs: list[Doc], seen: Seen) -> Claimed:
    due_us = None
    if len(docs) < wish.total:
        due_us = await next_due_us(database, {ask.queue for ask in wish.asks} - seen.paused, seen.now_us)
    return Claimed(jobs=await sorted_out(database, docs, seen.now_us), now_us=seen.now_us, next_due_us=due_us)
