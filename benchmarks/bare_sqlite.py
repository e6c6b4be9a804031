"""The bare batch loop on SQLite: the sqlite3 module, WAL, and as durable as it is told. `bare_sqlite.py DURABILITY JOBS`

One transaction settles a batch and claims the next, so that there is one wait for the disk per batch.
"""

from __future__ import annotations

import sqlite3
import time
from typing import Any

from bare_rows import BATCH, LEASE_US, OWNER, batches, check, new_row, tell

CLAIM = """
UPDATE bare_jobs SET status = 'processing', run_at_us = NULL, fence = fence + 1, attempts = attempts + 1, claim_id = ?,
  lease_owner = ?, lease_expires_at_us = ?, updated_at_us = ?
WHERE seq IN (SELECT seq FROM bare_jobs INDEXED BY bare_jobs_due
              WHERE status = 'pending' AND queue = 'bench' AND lane = 'fresh' AND priority = 0 AND run_at_us <= ?
              ORDER BY run_at_us, id LIMIT ?)
RETURNING seq, fence, task, payload
"""
SETTLE = """
UPDATE bare_jobs SET status = 'done', claim_id = NULL, settle_id = ?, lease_owner = NULL, lease_expires_at_us = NULL,
  finished_at_us = ?, updated_at_us = ?, result_json = ?
WHERE seq = ? AND fence = ? AND status = 'processing'
"""


def make(connection: sqlite3.Connection, row: dict[str, Any]) -> None:
    """The table, with the indexes that claims and a search for lapsed leases need."""
    columns = ", ".join(f"{name} {'TEXT' if isinstance(value, str) else ''}" for name, value in row.items())
    connection.execute(f"CREATE TABLE bare_jobs (seq INTEGER PRIMARY KEY, {columns})")
    connection.execute("CREATE UNIQUE INDEX bare_jobs_id ON bare_jobs (id)")
    connection.execute("CREATE INDEX bare_jobs_due ON bare_jobs (queue, lane, priority, run_at_us, id) WHERE status = 'pending'")
    connection.execute("CREATE INDEX bare_jobs_lease ON bare_jobs (lease_expires_at_us) WHERE status = 'processing'")


def insert(connection: sqlite3.Connection, jobs: int) -> float:
    """Stores the jobs, a batch per transaction; the seconds it took."""
    start = time.perf_counter()
    for batch in batches(jobs):
        now_us = time.time_ns() // 1_000
        rows = [new_row(now_us) for _ in batch]
        names, places = ", ".join(rows[0]), ", ".join("?" * len(rows[0]))
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(f"INSERT INTO bare_jobs ({names}) VALUES ({places})", [tuple(row.values()) for row in rows])
        connection.execute("COMMIT")
    return time.perf_counter() - start


def drain(connection: sqlite3.Connection) -> int:
    """Claims and settles until nothing is due; how many jobs were settled."""
    settled = number = 0
    held: list[tuple[Any, ...]] = []
    while True:
        number += 1
        now_us = time.time_ns() // 1_000
        connection.execute("BEGIN IMMEDIATE")
        outcomes = [(f"{OWNER}#{number}.{place}", now_us, now_us, None, row[0], row[1]) for place, row in enumerate(held)]
        if outcomes:
            settled += connection.executemany(SETTLE, outcomes).rowcount
        held = connection.execute(CLAIM, (f"claim {number}", OWNER, now_us + LEASE_US, now_us, now_us, BATCH)).fetchall()
        connection.execute("COMMIT")
        if not held:
            return settled


def run(file: str, durability: str, jobs: int) -> dict[str, float]:
    """One round on a table of its own."""
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {'FULL' if durability == 'full' else 'NORMAL'}")
    make(connection, new_row(0))
    insert_s = insert(connection, jobs)
    start = time.perf_counter()
    settled = drain(connection)
    seconds = time.perf_counter() - start
    check(settled, jobs)
    connection.close()
    return {"insert_s": insert_s, "seconds": seconds}


if __name__ == "__main__":
    tell(run)
