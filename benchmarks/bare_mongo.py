"""The bare batch loop on MongoDB: pymongo's async client, majority and journal. `bare_mongo.py DATABASE JOBS`

A claim is find, update_many and find; a settle is one bulk write of updates by _id. While a batch is settled, the next is claimed.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from bare_rows import BATCH, LEASE_US, OWNER, batches, check, new_row, tell
from pymongo import ASCENDING, AsyncMongoClient, UpdateMany, WriteConcern
from pymongo.asynchronous.collection import AsyncCollection

GROUP = 250  # jobs in one update of a settle
Documents = AsyncCollection[dict[str, Any]]
LINE = [("run_at_us", ASCENDING), ("_id", ASCENDING)]
DUE_INDEX = [("queue", ASCENDING), ("lane", ASCENDING), ("priority", ASCENDING), *LINE]


async def make(client: AsyncMongoClient[dict[str, Any]], database: str) -> Documents:
    """The collection, with the indexes that claims and a search for lapsed leases need."""
    jobs = client[database].get_collection("bare_jobs", write_concern=WriteConcern(w="majority", j=True))
    await jobs.create_index(DUE_INDEX, name="due", partialFilterExpression={"status": "pending"})
    await jobs.create_index("claim_id", name="claim", partialFilterExpression={"status": "processing"})
    await jobs.create_index("lease_expires_at_us", name="lease", partialFilterExpression={"status": "processing"})
    return jobs


async def insert(documents: Documents, jobs: int) -> float:
    """Stores the jobs in batches; the seconds it took."""
    start = time.perf_counter()
    for batch in batches(jobs):
        now_us = time.time_ns() // 1_000
        rows = [new_row(now_us) for _ in batch]
        for row in rows:
            row["_id"] = row.pop("id")
        await documents.insert_many(rows, ordered=False)
    return time.perf_counter() - start


async def claim(documents: Documents, claim_id: str) -> list[dict[str, Any]]:
    """Takes what is due, and reads what was taken."""
    now_us = time.time_ns() // 1_000
    due = {"queue": "bench", "lane": "fresh", "priority": 0, "status": "pending", "run_at_us": {"$lte": now_us}}
    chosen = await documents.find(due, {"_id": 1}, sort=LINE, limit=BATCH, hint="due", batch_size=BATCH + 1).to_list()
    if not chosen:
        return []
    ids = [document["_id"] for document in chosen]
    taken = {"status": "processing", "claim_id": claim_id, "lease_owner": OWNER, "lease_expires_at_us": now_us + LEASE_US}
    change = {"$set": {**taken, "run_at_us": None, "updated_at_us": now_us}, "$inc": {"fence": 1, "attempts": 1}}
    won = await documents.update_many({"_id": {"$in": ids}, "status": "pending"}, change, hint="_id_")
    wanted = {"claim_id": claim_id, "status": "processing"}
    rows = await documents.find(wanted, {"fence": 1, "task": 1, "payload": 1}, hint="claim", batch_size=BATCH + 1).to_list()
    check(len(rows), won.modified_count)
    return rows


async def settle(documents: Documents, rows: list[dict[str, Any]], number: int) -> int:
    """Writes the outcomes of a batch; how many were accepted.

    Jobs of one fence are one update, which looks up what is a job's own by the place of its id: one update per job takes the
    server several times as long. So do long lists, because each document searches them.
    """
    now_us = time.time_ns() // 1_000
    rest = {"status": "done", "claim_id": None, "lease_owner": None, "lease_expires_at_us": None, "finished_at_us": now_us}
    by_fence: dict[int, list[str]] = {}
    for row in rows:
        by_fence.setdefault(row["fence"], []).append(row["_id"])
    updates = []
    for fence, held in by_fence.items():
        for first in range(0, len(held), GROUP):
            ids = held[first : first + GROUP]
            outcomes = [{"settle_id": f"{OWNER}#{number}.{fence}.{first + place}", "result": None} for place in range(len(ids))]
            own = {"$arrayElemAt": [{"$literal": outcomes}, {"$indexOfArray": [{"$literal": ids}, "$_id"]}]}
            values = {**rest, "updated_at_us": now_us, "settle_id": "$own.settle_id", "result_json": "$own.result", "own": "$$REMOVE"}
            query = {"_id": {"$in": ids}, "status": "processing", "fence": fence}
            updates.append(UpdateMany(query, [{"$set": {"own": own}}, {"$set": values}], hint="_id_"))
    return (await documents.bulk_write(updates, ordered=False)).modified_count


async def drain(documents: Documents) -> int:
    """Claims and settles until nothing is due; how many jobs were settled."""
    settled = number = 0
    settling: asyncio.Task[int] | None = None
    while True:
        number += 1
        rows = await claim(documents, f"claim {number}")
        if settling is not None:
            settled += await settling
        if not rows:
            return settled
        settling = asyncio.create_task(settle(documents, rows, number))


async def run(url: str, database: str, jobs: int) -> dict[str, float]:
    """One round on a collection of its own."""
    async with AsyncMongoClient[dict[str, Any]](url, appname="mulligan bench") as client:
        documents = await make(client, database)
        insert_s = await insert(documents, jobs)
        start = time.perf_counter()
        settled = await drain(documents)
        seconds = time.perf_counter() - start
    check(settled, jobs)
    return {"insert_s": insert_s, "seconds": seconds}


if __name__ == "__main__":
    tell(lambda url, database, jobs: asyncio.run(run(url, database, jobs)))
