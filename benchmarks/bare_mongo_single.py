"""The loop on MongoDB that most people would write first: one job at a time. `bare_mongo_single.py DATABASE JOBS`

find_one_and_update claims a job, update_one settles it under its fence, and then comes the next. Majority and journal, as everywhere.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from bare_mongo import LINE, insert, make
from bare_rows import LEASE_US, OWNER, check, tell
from pymongo import AsyncMongoClient, MongoClient, WriteConcern
from pymongo.collection import Collection


def drain(documents: Collection[dict[str, Any]]) -> int:
    """Claims and settles until nothing is due; how many jobs were settled."""
    settled = number = 0
    while True:
        number += 1
        now_us = time.time_ns() // 1_000
        due = {"queue": "bench", "lane": "fresh", "priority": 0, "status": "pending", "run_at_us": {"$lte": now_us}}
        taken = {"status": "processing", "claim_id": f"claim {number}", "lease_owner": OWNER, "lease_expires_at_us": now_us + LEASE_US}
        change = {"$set": {**taken, "run_at_us": None, "updated_at_us": now_us}, "$inc": {"fence": 1, "attempts": 1}}
        row = documents.find_one_and_update(due, change, {"fence": 1, "task": 1, "payload": 1}, sort=LINE, hint="due", return_document=True)
        if row is None:
            return settled
        now_us = time.time_ns() // 1_000
        done = {"status": "done", "claim_id": None, "lease_owner": None, "lease_expires_at_us": None, "finished_at_us": now_us}
        values = {**done, "updated_at_us": now_us, "settle_id": f"{OWNER}#{number}", "result_json": None}
        settled += documents.update_one({"_id": row["_id"], "status": "processing", "fence": row["fence"]}, {"$set": values}).modified_count


async def fill(url: str, database: str, jobs: int) -> float:
    """Stores the jobs as the batch loop does; the seconds it took."""
    async with AsyncMongoClient[dict[str, Any]](url, appname="mulligan bench") as client:
        return await insert(await make(client, database), jobs)


def run(url: str, database: str, jobs: int) -> dict[str, float]:
    """One round on a collection of its own. The client that waits for each answer is pymongo's plain one, which is faster at that."""
    insert_s = asyncio.run(fill(url, database, jobs))
    with MongoClient[dict[str, Any]](url, appname="mulligan bench") as client:
        documents = client[database].get_collection("bare_jobs", write_concern=WriteConcern(w="majority", j=True))
        start = time.perf_counter()
        settled = drain(documents)
        seconds = time.perf_counter() - start
    check(settled, jobs)
    return {"insert_s": insert_s, "seconds": seconds}


if __name__ == "__main__":
    tell(run)
