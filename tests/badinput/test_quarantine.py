"""What was damaged in the store is set aside as failed with its reason, and never stops the worker."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mulligan import Job, Mulligan
from mulligan.stores.memory import MemoryStore

PAYLOADS = {
    "not JSON": "{args: [1]",
    "truncated": '{"args":[1,2',
    "empty": "",
    "a list": "[1, 2]",
    "another shape": '{"positional": [1]}',
    "args not a list": '{"args": 5, "kwargs": {}}',
    "extra fields": '{"args": [], "kwargs": {}, "extra": 1}',
    "too deep": '{"args":' + "[" * 100_000 + "]" * 100_000 + ',"kwargs":{}}',
    "null": "null",
}


async def three_jobs(url: str) -> tuple[Mulligan, list[str], list[int]]:
    """An app with three waiting jobs, their ids, and a list of what ran."""
    app = Mulligan(url)
    ran: list[int] = []

    @app.task
    async def work(number: int) -> int:
        ran.append(number)
        return number

    handles = await app.enqueue_many([work.job(number) for number in range(3)])
    return app, [handle.id for handle in handles], ran


def edit_file(path: Path, job_id: str, column: str, value: object) -> None:
    """Changes one field of a stored job by hand, past all checks."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA writable_schema = ON")  # STRICT refuses a wrong type; a damaged disk does not ask
    with connection:
        connection.execute(f"UPDATE mulligan_jobs SET {column} = ? WHERE id = ?", (value, job_id))
    connection.close()


def edit_memory(store: Any, job_id: str, **fields: Any) -> None:
    """Replaces fields of a row of the memory store."""
    assert isinstance(store, MemoryStore)
    store._put(msgspec.structs.replace(store._jobs[job_id], **fields))


async def assert_quarantined(app: Mulligan, ids: list[str], ran: list[int], words: str) -> Job:
    """A worker runs the others, sets the middle one aside without running it, and goes on with new work."""
    async with app.worker(poll=0.01) as worker:
        await worker.drain()
        later = await app.enqueue("work", args=[7])
        assert await later.result(timeout=10) == 7
    job = await app.get(ids[1])
    assert job.status == "failed"
    assert job.last_error is not None
    assert words in job.last_error.message
    assert job.history
    assert (await app.status())["default"].failed == 1
    assert (await app.status())["default"].done == 3
    assert sorted(ran) == [0, 2, 7]
    return job


@pytest.mark.parametrize("payload", list(PAYLOADS))
@pytest.mark.parametrize("damage", ["memory", "sqlite"])
async def test_a_payload_that_cannot_be_decoded(tmp_path: Path, damage: str, payload: str) -> None:
    """The job fails at once, with no retry, its payload is kept as it is for a person to see, and its handler never ran."""
    path = tmp_path / "jobs.db"
    spoil: dict[str, tuple[str, Callable[[Mulligan, str], None]]] = {
        "memory": ("memory://", lambda app, job_id: edit_memory(app.store, job_id, payload=PAYLOADS[payload])),
        "sqlite": (f"sqlite:///{path}", lambda app, job_id: edit_file(path, job_id, "payload", PAYLOADS[payload])),
    }
    url, act = spoil[damage]
    app, ids, ran = await three_jobs(url)
    act(app, ids[1])
    job = await assert_quarantined(app, ids, ran, "the stored payload cannot be decoded")
    assert (job.attempts, job.failures, job.payload) == (1, 1, PAYLOADS[payload])
    assert len([record for record in job.history if record.outcome == "failure"]) == 1
    await app.close()


async def test_arguments_that_no_longer_fit_are_a_failure_of_the_attempt(tmp_path: Path) -> None:
    """A payload of the right form for another signature is retried like any error: the next deploy may bring the right code."""
    app, ids, ran = await three_jobs(f"sqlite:///{tmp_path}/jobs.db")
    edit_file(tmp_path / "jobs.db", ids[1], "payload", '{"args":[],"kwargs":{"nosuch":1}}')
    async with app.worker(poll=0.01) as worker:
        while (await app.get(ids[1])).failures == 0:
            await app.store.now_us()
        assert worker.executor.running == 0
    job = await app.get(ids[1])
    assert (job.status, job.lane, job.failures) == ("pending", "retry", 1)
    assert job.last_error is not None
    assert "nosuch" in job.last_error.message
    assert sorted(ran) == [0, 2]
    await app.close()


BAD_COLUMNS = [
    ("lane", "sideways"),
    ("tags", "not json"),
    ("tags", '{"a": 1}'),
    ("tags", "[1]"),
    ("last_error", "{"),
    ("last_error", '{"message": 5}'),
    ("priority", 9),
    ("policy", "nonsense"),
    ("timeout_us", -5),
    ("max_age_us", -(2**62)),
]


@pytest.mark.parametrize("column, value", [pair for pair in BAD_COLUMNS if pair[0] in ("tags", "last_error")])
async def test_a_row_that_cannot_be_decoded(tmp_path: Path, column: str, value: object) -> None:
    """The claim that meets it sets it aside, gives out the others, and shows the column and the reason; get and jobs still answer."""
    app, ids, ran = await three_jobs(f"sqlite:///{tmp_path}/jobs.db")
    edit_file(tmp_path / "jobs.db", ids[1], column, value)
    assert [job.id async for job in app.jobs()] == list(reversed(ids))
    shown = await app.get(ids[1])
    assert shown.last_error is not None
    assert column in shown.last_error.message
    job = await assert_quarantined(app, ids, ran, column)
    assert job.last_error is not None
    assert job.last_error.type == "Undecodable"
    await app.close()


@pytest.mark.parametrize("column, value", [pair for pair in BAD_COLUMNS if pair[0] not in ("tags", "last_error")])
async def test_a_row_with_odd_values_stops_nothing(tmp_path: Path, column: str, value: object) -> None:
    """Whatever a single field was set to by hand, the other jobs run, listings answer, and the worker stays alive."""
    app, ids, ran = await three_jobs(f"sqlite:///{tmp_path}/jobs.db")
    edit_file(tmp_path / "jobs.db", ids[1], column, value)
    async with app.worker(poll=0.01):
        results = [await later.result(timeout=10) for later in [await app.enqueue("work", args=[number]) for number in (7, 8)]]
        assert results == [7, 8]
        for job_id in (ids[0], ids[2]):
            while (await app.get(job_id)).status != "done":
                await app.store.now_us()
    assert len([job async for job in app.jobs()]) == 5
    assert (await app.get(ids[1])).id == ids[1]
    assert {0, 2, 7, 8} <= set(ran)
    await app.close()


async def test_a_lapsed_job_that_cannot_be_decoded_does_not_stop_the_sweeper(tmp_path: Path) -> None:
    """A damaged row that was being processed when its worker died is set aside, and the other lapsed jobs come back."""
    app, ids, ran = await three_jobs(f"sqlite:///{tmp_path}/jobs.db")
    assert len(await app.claim(limit=3, lease=0.001)) == 3
    edit_file(tmp_path / "jobs.db", ids[1], "tags", "not json")
    async with app.worker(poll=0.01, sweep=0.01):
        for job_id in (ids[0], ids[2]):
            while (await app.get(job_id)).status != "done":
                await app.store.now_us()
    job = await app.get(ids[1])
    assert job.status == "failed"
    assert sorted(ran) == [0, 2]
    await app.close()


async def test_a_failed_row_that_was_mended_can_be_requeued(tmp_path: Path) -> None:
    """Once a person has mended the row, requeue runs it as it should have run."""
    app, ids, ran = await three_jobs(f"sqlite:///{tmp_path}/jobs.db")
    edit_file(tmp_path / "jobs.db", ids[1], "payload", "damaged")
    await assert_quarantined(app, ids, ran, "cannot be decoded")
    edit_file(tmp_path / "jobs.db", ids[1], "payload", '{"args":[1],"kwargs":{}}')
    assert await app.requeue(ids[1])
    async with app.worker(poll=0.01) as worker:
        await worker.drain()
    assert (await app.get(ids[1])).result == 1
    await app.close()
