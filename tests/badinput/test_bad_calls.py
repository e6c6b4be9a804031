"""Every bad call of the table: a clear error of our own, nothing stored, nothing lost, and the app goes on."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mulligan import Mulligan, MulliganError
from tests.badinput.cases import ALL, HUGE, Case, nested
from tests.builders import full_state
from tests.conftest import url_of

MESSAGE_CHARS_MAX = 800


async def app_with_witness(backend: str, folder: Path) -> Mulligan:
    """An app that knows two tasks and has one job waiting."""
    app = Mulligan(url_of(backend, folder))
    app.declare("free")

    @app.task
    async def work(number: int) -> int:
        return number + 1

    app.state.work = work
    app.state.witness = await work.enqueue(1)
    return app


async def done(act: Callable[[Mulligan], Any], app: Mulligan) -> None:
    """Makes the call and, if it is one to be awaited, awaits it."""
    made = act(app)
    if inspect.isawaitable(made):
        await made


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
async def test_a_bad_call_is_refused_and_changes_nothing(backend: str, tmp_path: Path, case: Case) -> None:
    """The error is of the tree, says what to do in few words, and store and app are as before."""
    app = await app_with_witness(backend, tmp_path)
    before = await full_state(app.store)
    tasks = sorted(task.name for task in app.registry)
    with pytest.raises(MulliganError) as caught:
        await done(case.act, app)
    assert type(caught.value) is case.error, repr(caught.value)
    assert case.words in str(caught.value)
    assert len(str(caught.value)) <= MESSAGE_CHARS_MAX
    assert caught.value.__traceback__ is not None
    after = await full_state(app.store)
    assert {name: after[name] for name in ("queues", "schedules", "events")} == {
        name: before[name] for name in ("queues", "schedules", "events")
    }
    assert list(after["jobs"]) == [app.state.witness.id]
    assert [event.kind for event in app.events.recent(100)] == ["ENQUEUED"]
    assert sorted(task.name for task in app.registry) == tasks
    [lease] = await app.claim()
    assert await lease.complete()
    await app.close()


@pytest.mark.parametrize("case", [case for case in ALL if not case.looks], ids=lambda case: case.name)
async def test_a_bad_call_is_refused_before_the_store_is_touched(tmp_path: Path, case: Case) -> None:
    """Where only the call is wrong, no file is made to find out."""
    app = Mulligan(f"sqlite:///{tmp_path}/jobs.db")
    app.declare("free")
    app.state.work = app.task(name="work")(lambda number: number)
    app.state.witness = type("Witness", (), {"id": "x"})
    with pytest.raises(MulliganError):
        await done(case.act, app)
    assert list(tmp_path.iterdir()) == []
    await app.close()


async def test_the_limits_themselves_are_fine(backend: str, tmp_path: Path) -> None:
    """What is just inside a limit is stored and comes back: depth 64, one MiB, 64-bit integers, names and keys of full length."""
    async with Mulligan(url_of(backend, tmp_path)) as app:
        name = "q" * 128
        app.declare(name)
        deep, wide = nested(64), HUGE[: 1024 * 1024 - len('{"args":[""],"kwargs":{}}')]
        for value in (deep, wide, 2**63 - 1, -(2**63)):
            handle = await app.enqueue(name, args=[value], queue=name, unique_key="k" * 256, tags=["t" * 256] * 20)
            job = await handle.job()
            assert job.args == [value]
            assert (job.queue, job.unique_key, job.tags) == (name, "k" * 256, ("t" * 256,) * 20)
            await app.cancel(handle.id)


async def test_results_are_held_to_the_same_rule(backend: str, tmp_path: Path) -> None:
    """A handler whose result cannot be stored has failed, is not run again, and the reason names the path; the worker goes on."""
    app = Mulligan(url_of(backend, tmp_path))
    results = {"object": object(), "nan": {"a": float("nan")}, "deep": nested(65), "huge": HUGE, "surrogate": ["\ud800"], "set": {1}}
    ran: list[str] = []

    @app.task
    async def give(name: str) -> object:
        ran.append(name)
        return results[name]

    @app.task
    async def fine() -> str:
        return "fine"

    async with app:
        handles = {name: await give.enqueue(name) for name in results}
        after = await fine.enqueue()
        async with app.worker() as worker:
            await worker.drain()
        for name, handle in handles.items():
            job = await handle.job()
            assert (job.status, job.attempts) == ("failed", 1), name
            assert job.last_error is not None
            assert "the handler returned something that cannot be stored: the result" in job.last_error.message
        assert await after.result() == "fine"
    assert sorted(ran) == sorted(results)
