"""Which way a batch of new jobs takes to the server, told by taking the other one away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from mulligan.core.errors import SchemaMismatch
from mulligan.stores.postgres import PostgresStore
from tests.builders import all_jobs, grouped, new_job
from tests.postgres.conftest import Raw

LOOKED_UP: tuple[dict[str, Any], ...] = ({"eta_us": 5}, {"schedule": "s"}, {"tick_us": 5}, {"delay_s": -1})


@contextmanager
def without(raw: Raw, function: str) -> Iterator[None]:
    """As if the schema had no such function."""
    raw.run(f"ALTER FUNCTION {{s}}.{function} RENAME TO {function}_away")
    try:
        yield
    finally:
        raw.run(f"ALTER FUNCTION {{s}}.{function}_away RENAME TO {function}")


async def test_like_jobs_go_the_short_way(store: PostgresStore, raw: Raw) -> None:
    """Jobs that differ in ids and payloads only need nothing but insert_alike, also with a group."""
    with without(raw, "insert_jobs"):
        await store.insert([replace(new_job(), payload=str(number)) for number in range(3)])
        await store.insert([grouped(fair="a", key="k", tags=("t",)) for _ in range(3)])
        with pytest.raises(SchemaMismatch, match="insert_jobs"):
            await store.insert([new_job(), new_job(priority=1)])
    assert len(await all_jobs(store)) == 6


async def test_others_go_the_long_way(store: PostgresStore, raw: Raw) -> None:
    """Jobs that differ, or that have something to look up, need nothing but insert_jobs."""
    job = new_job()
    batches = [[new_job(), new_job("other")], [new_job(), new_job(unique_key="a")], [new_job(unique_key="k"), new_job(unique_key="k")]]
    batches += [[new_job(**fields), new_job(**fields)] for fields in LOOKED_UP]
    with without(raw, "insert_alike"):
        for batch in [*batches, [job, job]]:
            await store.insert(batch)
        with pytest.raises(SchemaMismatch, match="insert_alike"):
            await store.insert([new_job(), new_job()])
    assert len(await all_jobs(store)) == 2 * len(batches)  # one key is taken, and one job is there twice


async def test_a_known_id_leaves_nothing_of_the_short_way(store: PostgresStore, raw: Raw) -> None:
    """If one of them is known, insert_alike stores none, and insert_jobs is asked."""
    known = new_job()
    await store.insert([known])
    batch = [new_job(), known, new_job()]
    with without(raw, "insert_jobs"), pytest.raises(SchemaMismatch, match="insert_jobs"):
        await store.insert(batch)
    assert list(await all_jobs(store)) == [known.id]
    assert [answer.created for answer in await store.insert(batch)] == [True] * 3
    assert len(await all_jobs(store)) == 3


@pytest.mark.parametrize("odd", [{"id": "a,b"}, {"payload": "1\n2"}])
async def test_what_cannot_be_joined_goes_the_long_way(store: PostgresStore, raw: Raw, odd: dict[str, Any]) -> None:
    """An id with a comma and a payload with a line break come back whole: what joins the others is not taken for a joint."""
    batch = [new_job(), replace(new_job(), **odd), replace(new_job(), payload="\x1f ü, 日本")]
    with without(raw, "insert_alike"):
        await store.insert(batch)
    stored = await all_jobs(store)
    assert {job.id: job.payload for job in batch} == {job.id: job.payload for job in stored.values()}


async def test_joined_jobs_come_back_whole(store: PostgresStore, raw: Raw) -> None:
    """Payloads of the short way are what they were, whatever text they are, also none at all."""
    payloads = ["", ",", "\t", "日本", "\\n", "\r", '{"a": null}', "NULL", ""]
    batch = [replace(new_job(), payload=payload) for payload in payloads]
    with without(raw, "insert_jobs"):
        await store.insert(batch)
    stored = await all_jobs(store)
    assert [stored[job.id].payload for job in batch] == payloads
