"""Receipts go with their job, whoever removes it."""

from __future__ import annotations

import pytest

from mulligan.stores.postgres import PostgresStore
from tests.builders import done, grip, put_and_claim
from tests.postgres.conftest import Raw

# As the version before receipts removes jobs; its workers may be at work beside newer ones.
OLD_PRUNE = """
WITH old AS MATERIALIZED (SELECT id FROM {s}.jobs WHERE status = 'done' ORDER BY finished_at_us LIMIT 10 FOR UPDATE SKIP LOCKED),
gone AS (DELETE FROM {s}.jobs j USING old WHERE j.id = old.id RETURNING j.id),
forgotten AS (DELETE FROM {s}.history h USING gone WHERE h.job_id = gone.id)
SELECT count(*) FROM gone
"""


@pytest.mark.parametrize("statement", ["DELETE FROM {s}.jobs WHERE status = 'done'", OLD_PRUNE], ids=["by hand", "by an old worker"])
async def test_they_go_with_a_job_that_others_remove(store: PostgresStore, raw: Raw, statement: str) -> None:
    """Nothing is left that nobody would ever find again; those of other jobs stay."""
    gone, also_gone, stays = [await put_and_claim(store) for _ in range(3)]
    for job in (gone, also_gone, stays):
        for name in ("one", "two"):
            await store.put_receipt(grip(job), name, "1")
    await store.settle([done(gone), done(also_gone)])
    raw.rows(statement) if statement is OLD_PRUNE else raw.run(statement)
    assert raw.rows("SELECT DISTINCT job_id FROM {s}.receipts") == [(stays.id,)]
