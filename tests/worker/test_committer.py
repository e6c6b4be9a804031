"""The committer: batches, the one outcome that cannot be stored, and a store that goes away and comes back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mulligan import Fail, Snooze
from mulligan.core.change import Change
from mulligan.core.contract import Store
from mulligan.core.errors import StoreRejected
from mulligan.core.job import ErrorInfo
from mulligan.worker.executor import Executor
from mulligan.worker.run import Run
from tests.builders import done, put_and_claim
from tests.faults import FaultyStore
from tests.virtual import Stage, play

BAD_TEXTS = {"nul": "a\0b", "lone surrogate": "a\ud800b", "fifty megabytes": "x" * 50_000_000}


@pytest.mark.parametrize("bad", list(BAD_TEXTS))
def test_one_unstorable_outcome_of_a_hundred_fails_alone(backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: str) -> None:
    """Ninety-nine outcomes commit, the one that no store can keep is failed as "unstorable", and the worker goes on."""
    decide = Executor._decide

    def spoil(self: Executor, run: Run, outcome: Any) -> Change:
        change = decide(self, run, outcome)
        if run.job.args == [50] and change.cause == "success":
            error = ErrorInfo(type="Bad", message=BAD_TEXTS[bad])
            return msgspec.structs.replace(change, error=error)
        return change

    async def scene(stage: Stage) -> None:
        @stage.app.task
        async def work(number: int) -> None:
            pass

        handles = await stage.app.enqueue_many([work.job(number) for number in range(100)])
        monkeypatch.setattr(Executor, "_decide", spoil)
        async with stage.worker() as worker:
            await worker.drain()
            monkeypatch.setattr(Executor, "_decide", decide)
            await work.enqueue(1_000)
            await worker.drain()
        jobs = [await handle.job() for handle in handles]
        assert [job.status for job in jobs].count("done") == 99
        spoiled = jobs[50]
        assert spoiled.status == "failed"
        assert spoiled.history[-1].outcome == "unstorable"
        status = await stage.app.status()
        assert status["default"].done == 100

    play(backend, tmp_path, scene)


def test_p03_a_store_error_after_success_is_not_the_handlers_failure(backend: str, tmp_path: Path) -> None:
    """Settling is repeated under the same settle id until the store answers; the handler runs once and the job is done."""
    ran: list[int] = []

    async def scene(stage: Stage) -> None:
        faulty = FaultyStore(stage.app.store)

        @stage.app.task
        async def work(number: int) -> int:
            ran.append(number)
            return number

        handle = await work.enqueue(7)
        stage.app.store = faulty  # type: ignore[assignment]
        faulty.fail("settle", times=2)
        faulty.fail("settle", times=1, when="after")
        async with stage.worker() as worker:
            await worker.drain()
        job = await handle.job()
        assert (job.status, job.result, job.failures, job.attempts) == ("done", 7, 0, 1)
        kinds = [event.kind for event in stage.app.events.recent(100)]
        assert kinds.count("STORE_DEGRADED") == 1
        assert kinds.count("STORE_RECOVERED") == 1
        assert kinds.count("COMPLETED") == 1

    play(backend, tmp_path, scene)
    assert ran == [7]


def test_w10_outcomes_of_mixed_kinds_are_written_in_batches(backend: str, tmp_path: Path) -> None:
    """Successes, retries, failures and snoozes of a hundred jobs take far fewer writes than outcomes (W10)."""

    async def scene(stage: Stage) -> None:
        faulty = FaultyStore(stage.app.store)
        stage.app.store = faulty  # type: ignore[assignment]

        @stage.app.task
        async def work(number: int) -> None:
            if number % 4 == 1:
                raise Fail("never")
            if number % 4 == 2 and number not in seen:
                seen.add(number)
                raise ConnectionError
            if number % 4 == 3 and number not in seen:
                seen.add(number)
                raise Snooze(1)

        seen: set[int] = set()
        await stage.app.enqueue_many([work.job(number) for number in range(100)])
        async with stage.worker() as worker:
            await worker.drain()
            await asyncio.sleep(2)
            await worker.drain()
        status = await stage.app.status()
        assert (status["default"].done, status["default"].failed) == (75, 25)
        assert faulty.calls["settle"] < 60
        assert faulty.calls["claim"] < 120

    play(backend, tmp_path, scene)


async def test_a_text_that_cannot_be_kept_is_refused_by_every_store(store: Store) -> None:
    """The refusal is an error of the whole call, before anything is written, so that the committer can look for the culprit."""
    job = await put_and_claim(store)
    bad = done(job, error=ErrorInfo(type="Bad", message="a\0b"))
    with pytest.raises(StoreRejected, match="NUL"):
        await store.settle([bad])
    [unchanged] = await store.get([job.id])
    assert unchanged is not None
    assert unchanged.status == "processing"
