from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from mulligan.core.contract import Ask, Query
from mulligan.core.ids import new_id
from mulligan.stores.postgres import PostgresStore
from mulligan.stores.postgres.at_once import SETTLE_ALIKE
from mulligan.stores.postgres.claim import CLAIM, CLAIM_MEMORY_US, READY_MAX
from mulligan.stores.postgres.database import Transaction
from mulligan.stores.postgres.writes import SETTLE
from tests.builders import ask, new_job
from tests.outages.drain import place
from tests.postgres.conftest import Raw
from tests.servers import Postgres

MANY, BATCH = 12_000, 100


@pytest.fixture(scope="module")
def own_server() -> Iterator[Postgres]:
    """A server that nobody else uses: an old transaction of another test would keep dead rows alive here."""
    with Postgres() as server:
        yield server


@pytest.fixture
def url(own_server: Postgres) -> str:
    """An empty schema on it."""
    return place(own_server.url)


# What a transaction has read so far: rows by going through the table, and entries of each index.
WORK = """
SELECT 'table', pg_stat_get_xact_tuples_returned('{s}.jobs'::regclass) UNION ALL
SELECT c.relname, pg_stat_get_xact_tuples_returned(c.oid) FROM pg_class c JOIN pg_index i ON i.indexrelid = c.oid
WHERE i.indrelid = '{s}.jobs'::regclass
"""


async def work_of(store: PostgresStore, call: Callable[[Transaction], Awaitable[Any]]) -> dict[str, int]:
    """How many rows and index entries a call reads."""

    async def measured(transaction: Transaction) -> dict[str, int]:
        before = {row[0]: row[1] for row in await transaction.rows(WORK)}
        await call(transaction)
        return {row[0]: row[1] - before[row[0]] for row in await transaction.rows(WORK)}

    return await store._call(lambda: store._db.within(measured))


def claim_params(asks: list[Ask], total: int, claim_id: str) -> list[Any]:
    """The parameters of a claim on the server's clock, without floors."""
    lines = [[a.queue for a in asks], [a.lane for a in asks], [a.priority for a in asks], [a.guaranteed for a in asks]]
    by_age = [a.order == "created_at" for a in asks]
    return [None, claim_id, "w", *lines, by_age, [0] * len(asks), 0, total, 60_000_000, False, READY_MAX, CLAIM_MEMORY_US]


ASKS = [ask("q", lane, priority=priority, guaranteed=20) for lane in ("fresh", "retry") for priority in (2, 1, 0)]


async def fill(store: PostgresStore, raw: Raw, statistics: str) -> None:
    """A table of MANY done and some pending jobs, with statistics of the wanted kind and without dead rows."""
    raw.run("ALTER TABLE {s}.jobs SET (autovacuum_enabled = false)")
    if statistics == "of an empty table":
        raw.run("VACUUM ANALYZE {s}.jobs")
    if statistics == "of all pending":
        await store.insert([new_job() for _ in range(MANY)])
        raw.run("ANALYZE {s}.jobs")
        raw.run("UPDATE {s}.jobs SET status = 'done', run_at_us = NULL, finished_at_us = 1")
        raw.run("VACUUM {s}.jobs")
    else:
        raw.run(
            """INSERT INTO {s}.jobs (id, queue, task, payload, policy, priority, lane, status, created_at_us, updated_at_us, finished_at_us,
                 due_first_us, due_us)
               SELECT 'done-' || n, 'q', 'work', '[]', '[]', 0, 'fresh', 'done', n, n, n, n, n FROM generate_series(1, %s) AS n""",
            (MANY,),
        )
    if statistics == "of all done":
        raw.run("ANALYZE {s}.jobs")
    await store.insert([new_job() for _ in range(3 * BATCH)])
    if statistics == "fresh":
        raw.run("VACUUM ANALYZE {s}.jobs")
    if statistics == "of a table that was nearly empty":
        raw.run("VACUUM ANALYZE {s}.jobs")
        raw.run("UPDATE pg_class SET reltuples = 1 WHERE oid = '{s}.jobs'::regclass")
        raw.run("DELETE FROM pg_statistic WHERE starelid = '{s}.jobs'::regclass")
    if statistics == "absent":
        raw.run("DELETE FROM pg_statistic WHERE starelid = '{s}.jobs'::regclass")


STATISTICS = ["fresh", "absent", "of a table that was nearly empty", "of an empty table", "of all pending", "of all done"]


@pytest.mark.parametrize("are_alike", [True, False])
@pytest.mark.parametrize("statistics", STATISTICS)
async def test_claim_and_settle_read_only_what_they_take(real: PostgresStore, raw: Raw, statistics: str, are_alike: bool) -> None:
    """Whatever the statistics say, neither goes through the table, and each reads a few index entries per job of its batch."""
    await fill(real, raw, statistics)
    raw.run("ALTER TABLE {s}.jobs SET (autovacuum_enabled = true)")
    taken: list[Any] = []

    async def claim(transaction: Transaction) -> None:
        taken.extend(row for row in await transaction.rows(CLAIM, *claim_params(ASKS, BATCH, new_id(0))) if row["id"] is not None)

    async def settle(transaction: Transaction) -> None:
        taken.sort(key=lambda row: row["id"])
        ids, fences = [row["id"] for row in taken], [row["fence"] for row in taken]
        if are_alike:
            each = [",".join(ids), ["1"] * BATCH, ",".join(["s"] * BATCH)]
            row = await transaction.row(SETTLE_ALIKE, None, *each, "q", 1, "fresh", 1, 0, 0, 0, 0, 1, None)
        else:
            each = [[1] * BATCH, [None] * BATCH, ["1"] * BATCH, ["s"] * BATCH, [None] * BATCH, [None] * BATCH]
            kind = [["processing"], ["done"], ["fresh"], [1], [0], [0], [0], [0], [1]]
            row = await transaction.row(SETTLE, None, ids, fences, *each, *kind)
        assert row["written"] == BATCH

    claimed = await work_of(real, claim)
    assert len(taken) == BATCH
    settled = await work_of(real, settle)
    assert claimed.pop("table") == settled.pop("table") == 0
    assert claimed.pop("jobs_due") <= 3 * BATCH
    assert claimed.pop("jobs_pkey") <= BATCH
    assert sum(claimed.values()) <= BATCH
    assert settled.pop("jobs_pkey") <= 2 * BATCH
    assert sum(settled.values()) == 0


async def test_future_and_done_jobs_cost_a_claim_nothing(real: PostgresStore, raw: Raw) -> None:
    """A claim does not step over jobs that wait for the future, in either order."""
    await real.insert([new_job(delay_s=3_600) for _ in range(5_000)])
    await real.insert([new_job() for _ in range(10)])
    raw.run("ANALYZE {s}.jobs")
    for asks in ([ask()], [ask(lane=None, order="created_at")]):
        params = claim_params(asks, 5, new_id(0))
        work = await work_of(real, lambda transaction, params=params: transaction.rows(CLAIM, *params))  # type: ignore[misc]
        assert work["table"] == 0
        assert sum(work.values()) < 100


async def test_looking_goes_along_an_index(real: PostgresStore, raw: Raw) -> None:
    """Stats and finds do not walk the done jobs."""
    await fill(real, raw, "of all pending")
    raw.run("VACUUM {s}.jobs")
    before = raw.rows("SELECT seq_tup_read FROM pg_stat_user_tables WHERE relid = '{s}.jobs'::regclass")
    await real.stats()
    for query in (Query(status="failed"), Query(status="processing"), Query(schedule="x"), Query(status="pending", queue="q")):
        await real.find(query, 10)
    raw.run("SELECT pg_stat_clear_snapshot()")
    assert raw.rows("SELECT seq_tup_read FROM pg_stat_user_tables WHERE relid = '{s}.jobs'::regclass") == before
