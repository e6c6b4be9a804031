"""Behind a pooler that gives every transaction another connection: PgBouncer in transaction mode, or MULLIGAN_TEST_PGBOUNCER_URL."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator

import pytest

from mulligan.stores.postgres import PostgresStore, from_url
from tests.builders import ask, claim, done, new_job, retry
from tests.servers import server_url
from tests.servers.pgbouncer import PgBouncer

pytestmark = pytest.mark.matrix


@pytest.fixture(scope="module")
def pooler_url() -> Iterator[str]:
    """The address of the pooler."""
    given = os.environ.get("MULLIGAN_TEST_PGBOUNCER_URL")
    if given:
        yield given
    else:
        with PgBouncer(server_url("postgres")) as pooler:
            yield pooler.url


@pytest.fixture(params=["auto", "on"])
async def pooled(request: pytest.FixtureRequest, pooler_url: str) -> AsyncIterator[PostgresStore]:
    """An open, empty store behind the pooler, told of it or not."""
    store = from_url(f"{pooler_url}?schema=t_pooled&pgbouncer={request.param}")
    await store.open()
    yield store
    await store.close()


async def test_the_pooler_is_noticed(pooled: PostgresStore) -> None:
    """The store sees by itself that its sessions are not its own, and says so."""
    facts = await pooled.describe()
    assert facts["pooler"] != "no"
    assert "poll" in str(facts["hints"])


async def test_many_at_once_through_few_connections(pooled: PostgresStore) -> None:
    """Inserts, claims, settles and reads at the same time, each in whatever connection it gets."""
    queue = f"pooled-{new_job().id}"
    await asyncio.gather(*(pooled.insert([new_job(queue)]) for _ in range(40)))

    async def work() -> int:
        finished = 0
        while jobs := (await claim(pooled, ask(queue), ask(queue, "retry"), total=7)).jobs:
            verdicts = await pooled.settle([done(job) if job.attempts > 1 else retry(job, delay_s=0) for job in jobs])
            assert all(verdict.applied for verdict in verdicts)
            finished += sum(verdict.status == "done" for verdict in verdicts)
            await pooled.stats()
        return finished

    assert sum(await asyncio.gather(*(work() for _ in range(6)))) + sum([await work()]) == 40


@pytest.mark.timeout(600)
def test_the_whole_conformance_suite_passes_behind_it(pooler_url: str) -> None:
    """The same tests as without a pooler, with nothing said about it in the URL."""
    environment = {**os.environ, "MULLIGAN_TEST_BACKENDS": "postgres", "MULLIGAN_TEST_POSTGRES_URL": pooler_url}
    environment.pop("MULLIGAN_TEST_RUN", None)
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "tests/conformance", "--ignore", "tests/servers"]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=500)
    assert answer.returncode == 0, answer.stdout[-3_000:]
