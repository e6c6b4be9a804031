"""The bare batch loop on PostgreSQL: asyncpg, one statement per batch, synchronous_commit on. `bare_postgres.py SCHEMA JOBS`

Two connections: while one settles a batch, the other claims the next. asyncpg prepares each statement once.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import asyncpg
from bare_rows import BATCH, LEASE_US, OWNER, batches, check, new_row, tell

# Columns by the type their values have.
TEXT = {"id", "queue", "task", "status", "lane", "claim_id", "settle_id", "lease_owner", "schedule", "unique_key"}
TEXT |= {"concurrency_key", "fair_key", "tags", "trace", "policy", "last_error", "result_json", "payload"}

# No statistics may change these plans: the loop is to show what the store can do, not what a stale guess costs.
SETTINGS = {
    "synchronous_commit": "on",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_bitmapscan": "off",
    "jit": "off",
    "application_name": "mulligan bench",
}
CLAIM = """
UPDATE bare_jobs AS j SET status = 'processing', run_at_us = NULL, fence = fence + 1, attempts = attempts + 1, claim_id = $1,
  lease_owner = $2, lease_expires_at_us = $3 + $4, updated_at_us = $3
FROM (SELECT id FROM bare_jobs WHERE status = 'pending' AND queue = 'bench' AND lane = 'fresh' AND priority = 0 AND run_at_us <= $3
      ORDER BY run_at_us, id LIMIT $5 FOR UPDATE SKIP LOCKED) AS due
WHERE j.id = due.id
RETURNING j.id, j.fence, j.task, j.payload
"""
# A settled job has a finished_at, a job that was claimed again another fence.
SETTLE = """
UPDATE bare_jobs AS j SET status = 'done', claim_id = NULL, settle_id = s.settle_id, lease_owner = NULL, lease_expires_at_us = NULL,
  finished_at_us = $4, updated_at_us = $4, result_json = s.result
FROM unnest($1::text[], $2::bigint[], $3::text[], $5::text[]) AS s (id, fence, settle_id, result)
WHERE j.id = s.id AND j.fence = s.fence AND j.finished_at_us IS NULL
"""


def table(schema: str, row: dict[str, Any]) -> str:
    """The statements that make the schema and the table, with the indexes that claims and a search for lapsed leases need."""
    kinds = {name: "text" if name in TEXT else "boolean" if name == "cancel_requested" else "bigint" for name in row}
    columns = ", ".join(f"{name} {kind}" for name, kind in kinds.items() if name != "id")
    return f"""
    CREATE SCHEMA {schema};
    CREATE TABLE bare_jobs (id text COLLATE "C" PRIMARY KEY, {columns}) WITH (fillfactor = 50);
    CREATE INDEX ON bare_jobs (queue, lane, priority, run_at_us, id) WHERE status = 'pending';
    CREATE INDEX ON bare_jobs (lease_expires_at_us) WHERE status = 'processing';
    """


async def insert(connection: asyncpg.Connection[asyncpg.Record], jobs: int) -> float:
    """Stores the jobs, a batch per COPY; the seconds it took."""
    start = time.perf_counter()
    for batch in batches(jobs):
        now_us = time.time_ns() // 1_000
        rows = [new_row(now_us) for _ in batch]
        await connection.copy_records_to_table("bare_jobs", records=[tuple(row.values()) for row in rows], columns=list(rows[0]))
    return time.perf_counter() - start


async def drain(claimer: asyncpg.Connection[asyncpg.Record], settler: asyncpg.Connection[asyncpg.Record]) -> int:
    """Claims and settles until nothing is due; how many jobs were settled."""
    claim, settle = await claimer.prepare(CLAIM), await settler.prepare(SETTLE)
    settled = number = 0
    settling: asyncio.Task[None] | None = None

    async def settle_batch(rows: list[asyncpg.Record], batch: int) -> None:
        nonlocal settled
        ids, fences = [row[0] for row in rows], [row[1] for row in rows]
        settle_ids = [f"{OWNER}#{batch}.{place}" for place in range(len(rows))]
        await settle.fetch(ids, fences, settle_ids, time.time_ns() // 1_000, [None] * len(rows))
        settled += int(settle.get_statusmsg().split()[1])

    while True:
        number += 1
        rows = await claim.fetch(f"claim {number}", OWNER, time.time_ns() // 1_000, LEASE_US, BATCH)
        if settling is not None:
            await settling
        if not rows:
            return settled
        settling = asyncio.create_task(settle_batch(rows, number))


async def run(url: str, schema: str, jobs: int) -> dict[str, float]:
    """One round on a table of its own."""
    settings = {**SETTINGS, "search_path": schema}
    claimer, settler = [await asyncpg.connect(url, server_settings=settings) for _ in range(2)]
    await claimer.execute(table(schema, new_row(0)))
    insert_s = await insert(claimer, jobs)
    start = time.perf_counter()
    settled = await drain(claimer, settler)
    seconds = time.perf_counter() - start
    check(settled, jobs)
    await claimer.close()
    await settler.close()
    return {"insert_s": insert_s, "seconds": seconds}


if __name__ == "__main__":
    tell(lambda url, schema, jobs: asyncio.run(run(url, schema, jobs)))
