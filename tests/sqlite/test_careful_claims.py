"""Claims under limits and with groups, where SQLite does them in its own way: looks before writes, other processes, damaged rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from mulligan.core.clock import ManualClock
from mulligan.core.contract import Ask
from mulligan.core.limits import BUCKET_MEMORY_US, Slots
from mulligan.stores.sqlite import SQLiteStore
from tests.builders import all_events, ask, bucket, claim, done, fifo, get, grouped, new_job
from tests.sqlite.children import child

ONE = Slots(most=1)
BY_AGE = Ask(queue="q", lane=None, priority=0, guaranteed=10, order="created_at", limits=(ONE,))


def written(store: SQLiteStore) -> int:
    """How many transactions the writer has made."""
    assert store._session is not None
    return store._session.writer._groups


@pytest.mark.parametrize("wanted", [ask(limits=(ONE,)), ask(lane=None, limits=(ONE,)), BY_AGE], ids=["one lane", "both lanes", "by age"])
async def test_blocked_claims_do_not_write(store: SQLiteStore, clock: ManualClock, wanted: Ask) -> None:
    """A claim that a limit holds back is answered by the reader in full, from the second time on; and it sees when the slot is free."""
    await store.insert([new_job() for _ in range(3)])
    await store.insert([grouped(fair="a"), grouped(fair="b"), grouped(fair="a", delay_s=60)])
    [held] = (await claim(store, wanted)).jobs
    by_writer = await claim(store, wanted)
    before = written(store)
    assert [await claim(store, wanted) for _ in range(3)] == [by_writer] * 3
    assert written(store) == before
    assert (by_writer.jobs, by_writer.held_back, by_writer.next_due_us) == ([], {"q"}, clock.now_us() + 60_000_000)
    assert len(by_writer.turns) == 1
    await store.settle([done(held)])
    assert len((await claim(store, wanted)).jobs) == 1


async def test_blocked_claim_by_age_sees_jobs_that_are_not_marked_yet(store: SQLiteStore) -> None:
    """What came since the last claim was written counts too: it may be admitted where the others are not."""
    limit = bucket(burst=1, lane="retry")
    wanted = Ask(queue="q", lane=None, priority=0, guaranteed=10, order="created_at", limits=(limit, Slots(most=0, lane="retry")))
    assert (await claim(store, wanted)).jobs == []
    assert (await claim(store, wanted)).jobs == []
    await store.insert([job := new_job()])
    assert [job.id for job in (await claim(store, wanted)).jobs] == [job.id]


@pytest.mark.parametrize("wanted", [ask(), ask(lane=None), fifo()], ids=["one lane", "both lanes", "by age"])
async def test_idle_claims_see_grouped_jobs(store: SQLiteStore, clock: ManualClock, wanted: Ask) -> None:
    """The look before the claim finds jobs with a group, those of the future too."""
    for _ in range(2):
        assert (await claim(store, wanted)).jobs == []
    await store.insert([first := grouped(fair="a"), second := grouped(fair="a", delay_s=10)])
    assert [job.id for job in (await claim(store, wanted)).jobs] == [first.id]
    for _ in range(2):
        assert (await claim(store, wanted)).next_due_us == clock.now_us() + 10_000_000
    clock.advance(10)
    assert [job.id for job in (await claim(store, wanted)).jobs] == [second.id]


async def test_change_of_strategy_under_limits_finds_marked_jobs(store: SQLiteStore) -> None:
    """Jobs that a claim by creation marked are served to a careful claim by run_at in the right order, and lose their marks."""
    jobs = [new_job(eta_us=1_000 - place) for place in range(6)]
    await store.insert(jobs)
    limits = (Slots(most=100),)
    assert [job.id for job in (await claim(store, fifo(), total=1)).jobs] == [jobs[0].id]
    taken = await claim(store, ask(limits=limits), total=3)
    assert [job.id for job in taken.jobs] == [jobs[5].id, jobs[4].id, jobs[3].id]
    assert await store._write(lambda t: t.row("SELECT count(*) FROM mulligan_jobs WHERE ready = 1")) == (0,)
    assert [job.id for job in (await claim(store, ask(lane=None, limits=limits))).jobs] == [jobs[2].id, jobs[1].id]


async def test_held_back_retries_do_not_hide_fresh_jobs(store: SQLiteStore) -> None:
    """In the order of creation, however many retries a limit holds back: fresh jobs behind them are listed all the same."""
    await store.insert([new_job() for _ in range(300)])
    await store._write(lambda t: t.run("UPDATE mulligan_jobs SET lane = 'retry'"))
    await store.insert([young := new_job()])
    wanted = Ask(queue="q", lane=None, priority=0, guaranteed=5, order="created_at", limits=(bucket(burst=0, lane="retry"),))
    assert [job.id for job in (await claim(store, wanted, total=5)).jobs] == [young.id]


async def test_slots_are_kept_only_while_a_job_runs(store: SQLiteStore) -> None:
    """Whatever ends a run takes the mark of the slots off the row."""
    await store.insert([new_job() for _ in range(4)])
    jobs = (await claim(store, ask(limits=(Slots(most=3),)))).jobs
    marked = "SELECT id, slots FROM mulligan_jobs WHERE slots IS NOT NULL ORDER BY id"
    assert await store._read(lambda t: t.rows(marked)) == [(job.id, "3||") for job in jobs]
    await store._write(lambda t: t.run("UPDATE mulligan_jobs SET tags = 'x' WHERE id = ?", (jobs[1].id,)))
    await store.settle([done(jobs[0])])
    await store.claim("c", "w", [ask()], 1, 0)
    await store._write(lambda t: t.run("UPDATE mulligan_jobs SET lease_expires_at_us = 0 WHERE id = ?", (jobs[1].id,)))
    assert jobs[1].id not in [job.id for job in await store.overdue(10)]  # which quarantines it
    assert await store._read(lambda t: t.rows(marked)) == [(jobs[2].id, "3||")]


async def test_untouched_buckets_are_forgotten_after_a_day(store: SQLiteStore, clock: ManualClock) -> None:
    """Now and then, and only those: the others stay as they are."""
    await store.insert([new_job() for _ in range(150)])
    old, new = bucket("old", burst=100), bucket("new", burst=100)
    await claim(store, ask(limits=(old,)), total=1)
    clock.advance(BUCKET_MEMORY_US / 1_000_000)
    for _ in range(70):
        await claim(store, ask(limits=(new,)), total=1)
    assert sorted(await store.levels()) == ["new", "old"]
    clock.advance(1)
    for _ in range(70):
        await claim(store, ask(limits=(bucket("newer", burst=100),)), total=1)
    assert sorted(await store.levels()) == ["new", "newer"]


@pytest.mark.parametrize("damage", ["'no group'", "CAST(x'61ff1f1f1f' AS TEXT)"], ids=["no group", "no UTF-8"])
@pytest.mark.parametrize("idle", [False, True], ids=["busy", "idle"])
async def test_damaged_group_is_quarantined(store: SQLiteStore, damage: str, idle: bool) -> None:
    """A group that was edited by hand into something else fails its jobs, and the others are claimed as if nothing were wrong."""
    for _ in range(2 if idle else 0):
        assert (await claim(store, ask())).jobs == []
    jobs = [grouped(fair=name) for name in ("a", "b", "c")]
    await store.insert(jobs)
    await store._write(lambda t: t.run(f"UPDATE mulligan_jobs SET grp = {damage} WHERE id = ?", (jobs[1].id,)))
    assert [job.id for job in (await claim(store, ask())).jobs] == [jobs[0].id, jobs[2].id]
    bad = await get(store, jobs[1].id)
    assert bad.status == "failed"
    assert bad.last_error is not None
    assert "column group" in bad.last_error.message
    assert [(event.kind, event.job_id) for event in await all_events(store)] == [("FAILED", jobs[1].id)]
    assert (await claim(store, ask())).jobs == []


async def test_damaged_job_of_a_careful_claim_is_quarantined(store: SQLiteStore) -> None:
    """It gives its slot back at once; the rest of the claim stands."""
    jobs = [grouped(fair="a") for _ in range(3)]
    await store.insert(jobs)
    await store._write(lambda t: t.run("UPDATE mulligan_jobs SET tags = '{' WHERE id = ?", (jobs[0].id,)))
    limits = (Slots(most=2),)
    assert [job.id for job in (await claim(store, ask(limits=limits))).jobs] == [jobs[1].id]
    assert (await get(store, jobs[0].id)).status == "failed"
    assert [job.id for job in (await claim(store, ask(limits=limits))).jobs] == [jobs[2].id]


@pytest.mark.parametrize("wanted", [ask(), fifo()], ids=["by time", "by age"])
async def test_damaged_groups_do_not_stop_the_way_round(store: SQLiteStore, wanted: Ask) -> None:
    """Texts that are no groups, before, among and behind many others: they are put aside, and all others are claimed."""
    jobs = [grouped(fair=f"t{number:03}") for number in range(80)]
    await store.insert([*jobs, *(bad := [grouped(fair="x") for _ in range(3)])])
    for job, damage in zip(bad, ("'no group'", "'t040'", "CAST(x'ff' AS TEXT)"), strict=True):
        await store._write(lambda t, job=job, damage=damage: t.run(f"UPDATE mulligan_jobs SET grp = {damage} WHERE id = ?", (job.id,)))  # type: ignore[misc]
    taken: list[str] = []
    while claimed := (await claim(store, wanted, total=2)).jobs:
        taken += [job.id for job in claimed]
    assert sorted(taken) == sorted(job.id for job in jobs)
    assert [(await get(store, job.id)).status for job in bad] == ["failed"] * 3


async def test_notes_and_levels_are_in_the_file(path: Path, clock: ManualClock) -> None:
    """Another opening of it finds them."""
    first = SQLiteStore(path, clock=clock)
    await first.open()
    await first.insert([new_job()])
    await claim(first, ask(limits=(bucket(burst=3),)))
    note = await first.put_note("k", "body", 0)
    levels = await first.levels()
    await first.close()
    second = SQLiteStore(path, clock=clock)
    await second.open()
    assert (await second.notes(""), await second.levels()) == ([note], levels)
    await second.close()


RACE = """
from mulligan.core.limits import Slots

COUNT = "SELECT count(*) FROM mulligan_jobs WHERE status = 'processing'"
LIMITS = (Slots(most=3), builders.bucket(burst=60))

async def main():
    store = SQLiteStore(sys.argv[1], durability="normal")
    await store.open()
    say("ready")
    wait()
    started, most, level_u, after = 0, 0, None, ""
    while level_u != 0:
        asks = [builders.ask(limits=LIMITS, after=after), builders.ask(lane="retry", limits=LIMITS)]
        claimed = await store.claim(builders.fresh_id(), sys.argv[2], asks, 2, 60_000_000)
        after = claimed.turns[0] if claimed.turns else after
        most = max(most, (await store._read(lambda t: t.row(COUNT)))[0])
        started += len(claimed.jobs)
        await store.settle([(builders.retry if place % 2 else builders.done)(job) for place, job in enumerate(claimed.jobs)])
        stored = (await store.levels()).get("b")
        level_u = None if stored is None else stored.level_u
    await store.close()
    return started, most
say(asyncio.run(main()))
"""


async def test_four_processes_keep_slots_and_tokens(path: Path) -> None:
    """However they race, never more run than there are slots, and together they start as many as there are tokens."""
    store = SQLiteStore(path)
    await store.open()
    await store.insert([grouped(fair=f"t{place % 5}") if place % 3 else new_job() for place in range(200)])
    with child(RACE, path, "a") as a, child(RACE, path, "b") as b, child(RACE, path, "c") as c, child(RACE, path, "d") as d:
        racers = (a, b, c, d)
        assert [one.hear() for one in racers] == ["ready"] * 4
        for one in racers:
            one.go_on()
        answers = [one.hear() for one in racers]
    assert sum(started for started, _ in answers) == 60, answers
    assert max(most for _, most in answers) <= 3, answers
    assert (await store.levels())["b"].level_u == 0
    [queue] = (await store.stats()).queues
    assert queue.processing == 0
    await store.close()
