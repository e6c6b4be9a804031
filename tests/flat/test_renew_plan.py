"""Renewing on PostgreSQL: what the server believes about the table must not matter."""

from __future__ import annotations

import psycopg
from psycopg import sql

from mulligan.core.contract import Store
from mulligan.stores import open_store
from tests.builders import ask, claim, grip, new_job, us
from tests.flat.meters import CounterMeter
from tests.outages.drain import place
from tests.servers import Postgres

HELD = 100
WAITING = 3_000


class Placed(CounterMeter):
    """A meter whose store's schema is known."""

    def __init__(self, server: Postgres) -> None:
        super().__init__(server)
        self.url = place(server.url)
        self.schema = self.url.partition("schema=")[2]

    def make(self) -> Store:
        return open_store(self.url)


async def test_a_renewal_looks_at_its_own_jobs_only() -> None:
    """Statistics of a time when nothing was running: a renewal of 100 leases looks at some rows for each, not at all that run for each."""
    with Postgres() as server, psycopg.connect(server.url, autocommit=True) as connection:
        meter = Placed(server)
        store = meter.make()
        await store.open()

        def run(statement: str) -> None:
            connection.execute(sql.SQL(statement).format(sql.Identifier(meter.schema)))

        run("ALTER TABLE {}.jobs SET (autovacuum_enabled = false)")
        await store.insert([new_job() for _ in range(WAITING)])
        run("ANALYZE {}.jobs")
        held = (await claim(store, ask(), total=5 * HELD)).jobs

        async def renew(store: Store) -> None:
            assert all(one.held for one in await store.renew([grip(job) for job in held[:HELD]], us(60)))

        examined = await meter.cost(store, renew)
        await store.close()
    print(f"{examined} rows examined for {HELD} renewals")
    assert examined <= 10 * HELD
