"""Receipts that somebody has damaged in their hash: one does not keep the others from being read."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.cli.copying import copy_store
from mulligan.core.errors import BadPayload
from mulligan.core.job import Lane
from mulligan.stores import open_store
from mulligan.stores.redis import RedisStore
from mulligan.stores.redis.server import Server
from tests.builders import ask, claim, done, get, grip, new_job, put_and_claim, requeue, retry
from tests.redis.keys import command, keys


@pytest.mark.parametrize("text", [b"", b"\xc1", b"\x01\x02\x03", b"\x01\x02\xa1\xff"])
async def test_a_receipt_that_cannot_be_decoded_still_stands(store: RedisStore, text: bytes) -> None:
    """Its step is not free again, and its value is told to be damaged."""
    job = await put_and_claim(store)
    for name in ("one", "two"):
        await store.put_receipt(grip(job), name, "1")
    await command(store, "HSET", f"{{}}receipts:{job.id}", "one", text)
    [found] = await store.receipts([job.id])
    values = {receipt.name: receipt for receipt in found}
    assert values["two"].value == 1
    with pytest.raises(BadPayload, match="one"):
        _ = values["one"].value
    assert await store.put_receipt(grip(job), "one", "2") == values["one"]


@pytest.mark.parametrize("runs", [1, 3])
async def test_a_job_whose_state_was_lost_keeps_them(store: RedisStore, runs: int) -> None:
    """Repaired and sent back, it is claimed under a fence that shows that it ran before; a copy carries them along."""
    await store.insert([new_job()])
    lane: Lane = "fresh"
    for _ in range(runs):
        [job] = (await claim(store, ask(lane=lane))).jobs
        await store.put_receipt(grip(job), f"step-{job.fence}", "1")
        if job.fence < runs:
            await store.settle([retry(job)])
        lane = "retry"
    await command(store, "DEL", f"{{}}state:{job.id}")
    assert (await store.repair())["stateless_jobs"] == 1
    target = open_store("memory://")
    await target.open()
    await copy_store(store, target, lambda jobs: None)
    assert [len(own) for own in await target.receipts([job.id])] == [runs]
    [verdict] = await store.settle([requeue(await get(store, job.id))])
    assert verdict.applied
    [again] = (await claim(store, ask(lane="retry"))).jobs
    assert (again.id, again.fence) == (job.id, runs + 1)


async def test_they_are_read_in_small_portions(store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script blocks the server while it runs, and each job may have megabytes of them."""
    jobs = [await put_and_claim(store) for _ in range(12)]
    for job in jobs:
        await store.put_receipt(grip(job), "one", "1")
    asked: list[int] = []
    run = Server.run

    async def noted(server: Server, script: str, *given: Any) -> Any:
        answer = await run(server, script, *given)
        if script == "receipts":
            asked.append(len(answer.values[0]))
        return answer

    monkeypatch.setattr(Server, "run", noted)
    assert [len(own) for own in await store.receipts([job.id for job in jobs])] == [1] * 12
    assert asked == [5, 5, 2]


async def test_they_are_one_key_that_goes_with_the_job(store: RedisStore) -> None:
    """A job without receipts has no key for them."""
    plain, stepped = await put_and_claim(store), await put_and_claim(store)
    await store.put_receipt(grip(stepped), "one", "1")
    assert {key for key in await keys(store) if key.startswith("receipts:")} == {f"receipts:{stepped.id}"}
    await store.settle([done(plain), done(stepped)])
    await store.prune("done", 0, 10)
    assert not [key for key in await keys(store) if key.startswith("receipts:")]
