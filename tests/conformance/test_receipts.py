"""Receipts: what finished steps leave with their job, written only by its holder; the first one of a name stays."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from mulligan.cli.copying import copy_store
from mulligan.core.change import Grip
from mulligan.core.clock import ManualClock
from mulligan.core.contract import Query, Store
from mulligan.core.errors import BadSetting, StoreRejected
from mulligan.core.job import Job
from mulligan.core.receipt import RECEIPT_BYTES_MAX, RECEIPTS_MAX, Receipt
from mulligan.stores import open_store
from tests.builders import (
    cancelled,
    claim,
    claim_one,
    crash,
    done,
    failed,
    fifo,
    full_state,
    get,
    grip,
    new_job,
    put_and_claim,
    release,
    requeue,
    retry,
)
from tests.faults import FaultyStore


async def test_a_receipt_is_written_and_read(store: Store, clock: ManualClock) -> None:
    """It has the fence it was written under and the store's time; values come back byte for byte."""
    job = await put_and_claim(store)
    receipt = await store.put_receipt(grip(job), "charge", '{"état":"payé","n":[1,2.50,"\\u0000"]}')
    assert receipt == Receipt(name="charge", value_json='{"état":"payé","n":[1,2.50,"\\u0000"]}', fence=1, at_us=clock.now_us())
    assert await store.receipts([job.id]) == [[receipt]]


async def test_the_value_none_is_a_value(store: Store) -> None:
    """A step that returns nothing has a receipt like any other; an empty text is another thing."""
    job = await put_and_claim(store)
    nothing = await store.put_receipt(grip(job), "mail", None)
    empty = await store.put_receipt(grip(job), "text", '""')
    assert nothing is not None and empty is not None
    assert (nothing.value_json, nothing.value, empty.value_json, empty.value) == (None, None, '""', "")
    assert await store.receipts([job.id]) == [[nothing, empty]]


async def test_the_first_one_of_a_name_stays(store: Store, clock: ManualClock) -> None:
    """A repeat after a lost reply answers what is there, whatever it brings; so does one of a later holder."""
    job = await put_and_claim(store)
    first = await store.put_receipt(grip(job), "charge", '"one"')
    clock.advance(1)
    assert await store.put_receipt(grip(job), "charge", '"one"') == first
    assert await store.put_receipt(grip(job), "charge", '"two"') == first
    assert await store.put_receipt(grip(job), "charge", None) == first
    await store.settle([retry(job)])
    again = await claim_one(store, fifo())
    assert again.fence == 2
    assert await store.put_receipt(grip(again), "charge", '"three"') == first
    assert await store.receipts([job.id]) == [[first]]


async def test_nobody_but_the_holder_writes(store: Store, clock: ManualClock) -> None:
    """A job that waits, is held by another, has come to rest or does not exist gets no receipt, not even one it has already."""
    job = await put_and_claim(store)
    kept = await store.put_receipt(grip(job), "kept", "1")
    assert kept is not None
    assert await store.put_receipt(Grip(job.id, 0), "x", "1") is None
    assert await store.put_receipt(Grip(job.id, 2), "x", "1") is None
    assert await store.put_receipt(Grip("nobody", 1), "x", "1") is None
    await store.settle([retry(job)])
    assert await store.put_receipt(grip(job), "x", "1") is None
    again = await claim_one(store, fifo())
    assert await store.put_receipt(grip(job), "x", "1") is None
    assert await store.put_receipt(grip(job), "kept", "1") is None
    await store.settle([done(again)])
    assert await store.put_receipt(grip(again), "x", "1") is None
    assert await store.receipts([job.id, "nobody"]) == [[kept], []]


async def test_an_ended_lease_that_nobody_took_over_still_holds(store: Store, clock: ManualClock) -> None:
    """As with settling: the fence decides, not the time."""
    job = await put_and_claim(store, lease_s=5)
    clock.advance(10)
    assert await store.put_receipt(grip(job), "late", "1") is not None
    await store.settle([crash(job)])
    assert await store.put_receipt(grip(job), "later", "1") is None


async def test_a_receipt_changes_nothing_else(store: Store) -> None:
    """Neither the job, nor the figures, nor the events, nor the lease."""
    job = await put_and_claim(store)
    before = await full_state(store)
    await store.put_receipt(grip(job), "charge", "1")
    assert await full_state(store) == before
    [listed] = (await store.find(Query(), 10)).jobs
    assert listed == job


async def test_receipts_outlast_retries_and_requeues(store: Store) -> None:
    """They belong to the job through all its generations: what was paid stays paid."""
    job = await put_and_claim(store)
    kept = [await store.put_receipt(grip(job), "one", "1")]
    await store.settle([release(job)])
    job = await claim_one(store, fifo())
    kept.append(await store.put_receipt(grip(job), "two", "2"))
    await store.settle([failed(job)])
    assert await store.receipts([job.id]) == [kept]
    await store.settle([requeue(await get(store, job.id))])
    job = await claim_one(store, fifo())
    assert job.generation == 2
    kept.append(await store.put_receipt(grip(job), "three", "3"))
    await store.settle([done(job)])
    assert await store.receipts([job.id]) == [kept]
    assert [receipt.fence for receipt in kept if receipt is not None] == [1, 2, 3]


async def test_receipts_come_in_the_order_of_their_writing(store: Store, clock: ManualClock) -> None:
    """Those of one moment by name; jobs in the order asked for, as often as asked for."""
    one, other = await put_and_claim(store), await put_and_claim(store)
    for name in ("z", "m.1", "m/2"):
        await store.put_receipt(grip(one), name, "1")
    clock.advance(1)
    await store.put_receipt(grip(one), "a", "1")
    await store.put_receipt(grip(other), "b", "1")
    found = await store.receipts([other.id, one.id, other.id])
    assert [[receipt.name for receipt in own] for own in found] == [["b"], ["m.1", "m/2", "z", "a"], ["b"]]
    assert await store.receipts([]) == []


async def test_prune_removes_receipts_with_their_job(store: Store, clock: ManualClock) -> None:
    """And leaves those of others; a job restored under the old id has none."""
    gone, stays = await put_and_claim(store), await put_and_claim(store)
    for job in (gone, stays):
        await store.put_receipt(grip(job), "charge", "1")
    await store.settle([done(gone), cancelled(stays)])
    whole = await get(store, gone.id)
    assert await store.prune("done", 0, 10) == 1
    assert [len(own) for own in await store.receipts([gone.id, stays.id])] == [0, 1]
    await store.restore([whole])
    assert await store.receipts([gone.id]) == [[]]


async def test_receipts_are_restored_with_their_job(store: Store, clock: ManualClock) -> None:
    """As they were, in every status; those of a job that is there already stay as they are."""
    source = open_store("memory://", clock=clock)
    await source.open()
    resting, held, bare = [await put_and_claim(source) for _ in range(3)]
    for job in (resting, held):
        for name, value in (("a", '"é"'), ("b", None)):
            await source.put_receipt(grip(job), name, value)
        clock.advance(1)
    await source.settle([done(resting)])
    ids = [resting.id, held.id, bare.id]
    jobs = [await get(source, job_id) for job_id in ids]
    receipts = dict(zip(ids, await source.receipts(ids), strict=True))
    assert await store.restore(jobs, receipts) == [True, True, True]
    assert await store.receipts(ids) == await source.receipts(ids)
    changed = {job_id: [Receipt(name="x", value_json="1", fence=1, at_us=1)] for job_id in ids}
    assert await store.restore(jobs, changed) == [False, False, False]
    assert await store.receipts(ids) == await source.receipts(ids)
    again = await store.put_receipt(grip(held), "a", '"other"')
    assert again is not None and again.value == "é"


async def test_a_job_has_a_hundred_receipts_at_most(store: Store) -> None:
    """One more is refused, and those that are there still answer; another job is not concerned."""
    job, other = await put_and_claim(store), await put_and_claim(store)
    first = await store.put_receipt(grip(job), "step-0", "0")
    for number in range(1, RECEIPTS_MAX):
        await store.put_receipt(grip(job), f"step-{number}", str(number))
    with pytest.raises(StoreRejected, match=r"100 receipts"):
        await store.put_receipt(grip(job), "one-more", "1")
    assert await store.put_receipt(grip(job), "step-0", "1") == first
    assert await store.put_receipt(Grip(job.id, 9), "one-more", "1") is None
    assert await store.put_receipt(grip(other), "one-more", "1") is not None
    [own] = await store.receipts([job.id])
    assert len(own) == RECEIPTS_MAX


async def test_a_value_has_a_bound(store: Store) -> None:
    """64 KiB are kept, counted in bytes; more is refused, and nothing is written."""
    job = await put_and_claim(store)
    largest = '"' + "é" * (RECEIPT_BYTES_MAX // 2 - 1) + '"'
    kept = await store.put_receipt(grip(job), "large", largest)
    assert kept is not None and kept.value_json == largest
    with pytest.raises(StoreRejected, match="65,538 bytes"):
        await store.put_receipt(grip(job), "larger", largest[:-1] + 'é"')
    assert await store.receipts([job.id]) == [[kept]]


@pytest.mark.parametrize("sign", ["x", "é"])
async def test_all_values_of_a_job_have_a_bound_together(store: Store, sign: str) -> None:
    """Three megabytes, counted in bytes; one more is refused, what is there still answers, and the job can be settled."""
    job, other = await put_and_claim(store), await put_and_claim(store)
    large = '"' + sign * ((RECEIPT_BYTES_MAX - 2) // len(sign.encode())) + '"'
    for number in range(45):
        assert await store.put_receipt(grip(job), f"step-{number}", large) is not None
    with pytest.raises(StoreRejected, match="3,000,000"):
        await store.put_receipt(grip(job), "one-more", None)
    assert await store.put_receipt(Grip(job.id, 9), "one-more", None) is None
    assert await store.put_receipt(grip(other), "one-more", large) is not None
    [own] = await store.receipts([job.id])
    assert len(own) == 45
    assert await store.put_receipt(grip(job), "step-0", None) == next(receipt for receipt in own if receipt.name == "step-0")
    assert [verdict.applied for verdict in await store.settle([done(job)])] == [True]


async def test_a_copy_asks_for_the_receipts_of_few_jobs_at_a_time(store: Store) -> None:
    """Those of one job may be megabytes; all arrive all the same, also those of a failed job that shows no fence."""
    await store.insert([new_job() for _ in range(150)])
    jobs = (await claim(store, total=150)).jobs
    for job in jobs[::7]:
        await store.put_receipt(grip(job), "charge", f'"{job.id}"')
    await store.settle([failed(job) for job in jobs])
    source, target = Asked(store), open_store("memory://")
    await target.open()
    copied = await copy_store(source, target, lambda jobs: None)  # type: ignore[arg-type]
    assert (copied.copied, copied.problems) == (150, ())
    ids = [job.id for job in jobs]
    assert await target.receipts(ids) == await store.receipts(ids)
    assert sum(len(own) for own in await target.receipts(ids)) == 22
    assert max(source.asked) <= 50 and sum(source.asked) == 150


class Asked(FaultyStore):
    """Notes of how many jobs receipts were asked at once, and hides the fences of jobs."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.asked: list[int] = []

    async def get(self, ids: Sequence[str]) -> list[Job | None]:
        return [None if job is None else replace(job, fence=0) for job in await self._inner.get(ids)]

    async def receipts(self, ids: Sequence[str]) -> list[list[Receipt]]:
        self.asked.append(len(ids))
        return await self._inner.receipts(ids)


@pytest.mark.parametrize("value", ['"\0"', '"\ud800"'])
async def test_a_text_that_not_every_store_keeps_is_refused(store: Store, value: str) -> None:
    """As in results."""
    job = await put_and_claim(store)
    with pytest.raises(StoreRejected, match="charge"):
        await store.put_receipt(grip(job), "charge", value)
    assert await store.receipts([job.id]) == [[]]


@pytest.mark.parametrize("name", ["", "a b", "-x", "é", "x" * 129, "a\n", "$where"])
async def test_a_name_is_like_other_names(store: Store, name: str) -> None:
    """Letters, digits and a few marks, 128 characters at most."""
    job = await put_and_claim(store)
    with pytest.raises(BadSetting, match="not a valid name"):
        await store.put_receipt(grip(job), name, "1")
    assert await store.put_receipt(grip(job), "a.b:c/d@e-f_" + "x" * 116, "1") is not None


async def test_of_many_writers_the_first_wins(store: Store) -> None:
    """All are told the same receipt; steps of different names do not get in each other's way."""
    job = await put_and_claim(store)
    same = await asyncio.gather(*(store.put_receipt(grip(job), "one", str(number)) for number in range(10)))
    assert len(set(map(str, same))) == 1
    await asyncio.gather(*(store.put_receipt(grip(job), f"step-{number}", str(number)) for number in range(20)))
    [own] = await store.receipts([job.id])
    assert {receipt.name: receipt.value for receipt in own if receipt.name != "one"} == {f"step-{number}": number for number in range(20)}


async def test_a_hundred_at_once_are_not_exceeded(store: Store) -> None:
    """The bound is kept under writers that race for the last place."""
    job = await put_and_claim(store)
    for number in range(RECEIPTS_MAX - 2):
        await store.put_receipt(grip(job), f"step-{number}", "1")
    late = await asyncio.gather(*(store.put_receipt(grip(job), f"late-{number}", "1") for number in range(8)), return_exceptions=True)
    assert sum(isinstance(answer, Receipt) for answer in late) == 2
    assert sum(isinstance(answer, StoreRejected) for answer in late) == 6
    [own] = await store.receipts([job.id])
    assert len(own) == RECEIPTS_MAX
