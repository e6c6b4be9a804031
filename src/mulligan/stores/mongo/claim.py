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

All this is for jobs without groups and claims without limits. A claim that has to do with either is a careful one (careful.py). Which
queues have had jobs with a group, the look tells; the process remembers it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from itertools import chain

from pymongo.errors import DuplicateKeyError

from mulligan.core.contract import Claimed
from mulligan.core.lending import allot
from mulligan.core.limits import matters_without_group
from mulligan.stores.mongo.careful import claim_carefully
from mulligan.stores.mongo.database import Database, Doc
from mulligan.stores.mongo.look import Candidate, Seen, look
from mulligan.stores.mongo.marks import READY_MAX, mark, unmark
from mulligan.stores.mongo.rows import WITHOUT_HISTORY
from mulligan.stores.mongo.take import Wish, answer, claim_doc, due_next, forget_claims, guarded, held, take, taken_values

ROUNDS = 30  # looks of one claim, if others take away what it saw
SPREAD = 4  # after a lost round it looks so many times further, times the number of lost rounds


async def claim(database: Database, wish: Wish, rng: random.Random) -> Claimed:
    """Takes due jobs under a lease, or finds what an earlier claim of the same id still holds."""
    if any(ask.queue in database.grouped or matters_without_group(ask.limits) for ask in wish.asks):
        return await claim_carefully(database, wish, rng)
    if any(ask.order == "created_at" for ask in wish.asks):
        await mark(database, wish.asks)
    seen = await _look(database, wish, wish.total)
    if seen.grouped:
        database.grouped |= seen.grouped
        return await claim_carefully(database, wish, rng)
    if seen.known is not None:
        return await held(database, wish, seen.known, seen)
    lines = _pick(wish, seen, [ask.guaranteed for ask in wish.asks], wish.total, wish.total)
    chosen = list(chain(*lines))
    if not chosen:
        return await answer(database, [], seen, await due_next(database, wish, 0, seen))
    remembered, docs = await asyncio.gather(_remember(database, wish, chosen, seen.now_us), _read(database, chosen))
    if not remembered:  # the same claim, twice at the same moment
        known = await database.claims.find_one({"_id": wish.claim_id})
        return await held(database, wish, known or {"ids": [], "fences": []}, seen)
    won, due_us = await asyncio.gather(_take(database, wish, chosen, docs, seen.now_us), due_next(database, wish, len(chosen), seen))
    if len(won) < len(chosen):
        # Claims of one process wait for each other here, so that they have only strangers to fight.
        async with database.claiming:
            seen = await _take_more(database, wish, won, _lost(lines, won), rng)
        due_us = await due_next(database, wish, len(won), seen)
    if not won:  # a repeat may take something
        await database.claims.delete_one({"_id": wish.claim_id})
    return await answer(database, won, seen, due_us)


async def _take_more(database: Database, wish: Wish, won: list[Doc], shares: list[int], rng: random.Random) -> Seen:
    """Looks again and again, because others took what was seen, until the claim is full or nothing is due. Adds to what was won.

    `shares` are what each ask has lost so far: only that may be made up for, or the lanes would end up with other shares than asked for.
    """
    for lost in range(1, ROUNDS):
        wanted = wish.total - len(won)
        limit = min(wanted * SPREAD * lost, max(wanted, READY_MAX))
        seen = await _look(database, wish, limit)
        lines = _pick(wish, seen, shares, wanted, limit, rng)
        chosen = list(chain(*lines))
        if not chosen:
            break
        more = {"ids": {"$each": [one.id for one in chosen]}, "fences": {"$each": [one.fence for one in chosen]}}
        _, docs = await asyncio.gather(database.claims.update_one({"_id": wish.claim_id}, {"$push": more}), _read(database, chosen))
        new = await _take(database, wish, chosen, docs, seen.now_us)
        won += new
        if len(new) == len(chosen):
            break
        shares = _lost(lines, new)
    return seen


async def _look(database: Database, wish: Wish, limit: int) -> Seen:
    seen = await look(database, wish.claim_id, wish.asks, limit)
    if seen.marked and seen.known is None:
        seen = await look(database, wish.claim_id, wish.asks, limit, with_marked=True)
        await unmark(database, seen.marked)
    return seen


def _pick(wish: Wish, seen: Seen, shares: Sequence[int], total: int, limit: int, rng: random.Random | None = None) -> list[list[Candidate]]:
    """The jobs of a claim, by ask: each one's own share, then what the others leave, in the order of the asks."""
    listed: set[str] = set()
    lines: list[list[Candidate]] = []
    for place, ask in enumerate(wish.asks):
        # Asks may overlap. A job stands in the line of the first ask that lists it.
        line = [] if ask.queue in seen.paused else [one for one in seen.of_ask(place, limit) if one.id not in listed]
        if rng is not None and len(line) > total:
            line = line[rng.randrange(len(line) - total + 1) :]
        line = line[:total]
        listed.update(one.id for one in line)
        lines.append(line)
    groups = [(ask.queue, ask.lane) for ask in wish.asks]
    takes = allot(total, shares, [len(line) for line in lines], groups)
    return [line[:share] for line, share in zip(lines, takes, strict=True)]


def _lost(lines: Sequence[Sequence[Candidate]], won: Sequence[Doc]) -> list[int]:
    """How many of its jobs each ask did not get."""
    ids = {doc["_id"] for doc in won}
    return [sum(one.id not in ids for one in line) for line in lines]


async def _remember(database: Database, wish: Wish, chosen: Sequence[Candidate], now_us: int) -> bool:
    """Writes down what is going to be taken, before it is: a repeat must find it. False if another has this claim_id."""
    try:
        await database.claims.insert_one(claim_doc(wish, [(one.id, one.fence) for one in chosen], now_us))
    except DuplicateKeyError:
        return False
    await forget_claims(database, now_us)
    return True


async def _read(database: Database, chosen: Sequence[Candidate]) -> dict[str, Doc]:
    docs = await database.docs(database.jobs, {"_id": {"$in": [one.id for one in chosen]}}, WITHOUT_HISTORY, batch=len(chosen) + 1)
    return {doc["_id"]: doc for doc in docs}


async def _take(database: Database, wish: Wish, chosen: Sequence[Candidate], docs: dict[str, Doc], now_us: int) -> list[Doc]:
    """Takes what is still as it was seen; the documents of the jobs that were won, in the order of the choice."""
    values = taken_values(wish, now_us)
    written = await take(database, guarded({"status": "pending"}, [(one.id, one.fence) for one in chosen]), values)
    ids = [one.id for one in chosen]
    if written == len(docs) == len(ids):
        taken = [doc for one in chosen if (doc := _taken(docs[one.id], one.fence, values)) is not None]
        if len(taken) == len(ids):
            return taken
    mine = {"_id": {"$in": ids}, "status": "processing", "claim_id": wish.claim_id}
    won = {doc["_id"]: doc for doc in await database.docs(database.jobs, mine, WITHOUT_HISTORY)}
    return [won[job_id] for job_id in ids if job_id in won]


def _taken(doc: Doc, fence: int, values: Doc) -> Doc | None:
    """The document as the take has left it; None if it was not read as it had been seen, and must be read again."""
    attempts = doc.get("attempts")
    if doc.get("status") != "pending" or doc.get("fence") != fence or type(attempts) is not int:
        return None
    doc |= values
    doc["fence"] = fence + 1
    doc["attempts"] = attempts + 1
    doc.pop("run_at_us", None)
    return doc
