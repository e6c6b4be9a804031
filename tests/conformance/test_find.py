from __future__ import annotations

import pytest

from mulligan.core.clock import ManualClock
from mulligan.core.contract import FIND_LIMIT_MAX, Query, Store
from mulligan.core.errors import UsageError
from tests.builders import claim, done, failed, fresh_id, get, new_job, put_and_claim, retry


async def found(store: Store, limit: int = 100, after: str | None = None, **fields: str) -> list[str]:
    """The ids of one page."""
    return [job.id for job in (await store.find(Query(**fields), limit, after)).jobs]  # type: ignore[arg-type]


async def test_get_answers_in_the_order_of_the_ids(store: Store) -> None:
    """A missing job is None at its place, and an id may be asked for twice."""
    first, second = new_job(), new_job()
    await store.insert([first, second])
    rows = await store.get([second.id, fresh_id(), first.id, second.id])
    assert [row and row.id for row in rows] == [second.id, None, first.id, second.id]
    assert await store.get([]) == []


async def test_get_reads_at_the_stores_time(store: Store, clock: ManualClock) -> None:
    """The value says when it was read, so that derived views need no second clock."""
    job = new_job(delay_s=10)
    await store.insert([job])
    assert (await get(store, job.id)).view == "scheduled"
    clock.advance(10)
    row = await get(store, job.id)
    assert (row.view, row.read_at_us) == ("ready", clock.now_us())


async def test_newest_first_by_id(store: Store) -> None:
    """Pages run from the newest id down, whatever the order of insertion."""
    ids = [fresh_id() for _ in range(5)]
    await store.insert([new_job(id=ids[position]) for position in (3, 0, 4, 1, 2)])
    assert await found(store) == ids[::-1]


async def test_pages_by_key_without_gaps_or_repeats(store: Store) -> None:
    """`after` continues a page, is None exactly at the end, and is not disturbed by newer jobs."""
    jobs = [new_job() for _ in range(7)]
    await store.insert(jobs)
    pages: list[list[str]] = []
    after: str | None = None
    while True:
        page = await store.find(Query(queue="q"), 3, after)
        pages.append([job.id for job in page.jobs])
        assert page.after in (None, page.jobs[-1].id)
        await store.insert([new_job()])
        after = page.after
        if after is None:
            break
    assert [len(page) for page in pages] == [3, 3, 1]
    assert [job_id for page in pages for job_id in page] == [job.id for job in reversed(jobs)]


async def test_a_full_last_page_has_no_continuation(store: Store) -> None:
    """When the page holds exactly the rest, there is no more."""
    await store.insert([new_job() for _ in range(4)])
    page = await store.find(Query(), 2)
    assert page.after is not None
    page = await store.find(Query(), 2, page.after)
    assert (len(page.jobs), page.after) == (2, None)


async def test_nothing_found_is_an_empty_page(store: Store) -> None:
    """No match, no continuation, no error; the same after the last id."""
    job = new_job()
    await store.insert([job])
    for page in (await store.find(Query(queue="other"), 10), await store.find(Query(), 10, job.id)):
        assert (page.jobs, page.after) == ([], None)


async def test_every_field_of_a_query_filters(store: Store) -> None:
    """Status, queue, task, lane, schedule and tag each narrow the page; given together, all must match."""
    plain = new_job("a", task="t1", tags=("red", "blue"))
    other = new_job("b", task="t2", tags=("redder",), schedule="s")
    await store.insert([plain, other])
    retried = await put_and_claim(store, queue="c", task="t1", tags=("red",))
    await store.settle([retry(retried, delay_s=60)])
    dead = await put_and_claim(store, queue="c")
    await store.settle([failed(dead)])
    assert await found(store, queue="a") == [plain.id]
    assert await found(store, task="t1") == [retried.id, plain.id]
    assert await found(store, tag="red") == [retried.id, plain.id]
    assert await found(store, tag="blue") == [plain.id]
    assert await found(store, schedule="s") == [other.id]
    assert await found(store, lane="retry") == [dead.id, retried.id]
    assert await found(store, status="failed") == [dead.id]
    assert await found(store, status="pending") == [retried.id, other.id, plain.id]
    assert await found(store, status="pending", task="t1", tag="red", lane="retry", queue="c") == [retried.id]
    assert await found(store, status="done") == []


@pytest.mark.parametrize("tag", ['quo"te', "per%cent", "under_score", "back\\slash", "com,ma", "[", "ä😀", "'; drop"])
async def test_tags_are_matched_as_whole_texts(store: Store, tag: str) -> None:
    """A tag matches itself and nothing that merely looks like it."""
    job, decoy = new_job(tags=("x", tag)), new_job(tags=(tag + "x", "x" + tag, "underXscore", "perXXcent"))
    await store.insert([job, decoy])
    assert await found(store, tag=tag) == [job.id]


@pytest.mark.parametrize("limit", [0, -1, FIND_LIMIT_MAX + 1])
async def test_limits_out_of_bounds_are_refused(store: Store, limit: int) -> None:
    """A page holds between one job and FIND_LIMIT_MAX; anything else is the caller's error."""
    with pytest.raises(UsageError):
        await store.find(Query(), limit)


async def test_the_largest_page_is_allowed(store: Store) -> None:
    """FIND_LIMIT_MAX itself is within the bounds."""
    await store.insert([new_job() for _ in range(FIND_LIMIT_MAX + 1)])
    page = await store.find(Query(), FIND_LIMIT_MAX)
    assert len(page.jobs) == FIND_LIMIT_MAX
    assert page.after == page.jobs[-1].id


async def test_found_jobs_are_whole_but_for_the_history(store: Store) -> None:
    """A page carries every field of its jobs; histories come with get."""
    job = await put_and_claim(store, tags=("a",))
    await store.settle([retry(job)])
    await store.settle([done((await claim(store)).jobs[0], '"r"')])
    [row] = (await store.find(Query(), 1)).jobs
    whole = await get(store, job.id)
    assert row.history == ()
    assert len(whole.history) == 1
    assert (row.result_json, row.tags, row.failures, row.finished_at_us, row.read_at_us) == (
        whole.result_json,
        whole.tags,
        whole.failures,
        whole.finished_at_us,
        whole.read_at_us,
    )
