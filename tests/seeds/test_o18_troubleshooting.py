"""O18: the three questions of the troubleshooting page are answered by `mulligan doctor` and `mulligan why ID`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mulligan import Constant, Mulligan, RetryPolicy
from tests.cli.commands import run_command
from tests.conftest import BACKENDS, DURABLE, url_of


@pytest.fixture(params=[name for name in BACKENDS if name in DURABLE])
def trouble(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, dict[str, str]]:
    """A store with one job that was not retried, one task that is retried too often, and one retry that waits too long; their ids."""
    url = url_of(request.param, tmp_path)

    async def make() -> dict[str, str]:
        async with Mulligan(url) as app:
            app.declare("final")
            app.declare("noisy")
            app.declare("distant", retry=RetryPolicy(backoff=Constant(7_200), jitter="none"))
            ids = {name: (await app.enqueue(name)).id for name in ("final", "noisy", "distant")}
            for _ in range(11):
                await app.enqueue("noisy")
            for lease in await app.claim(limit=20):
                assert await lease.fail("no such table", retry=lease.job.task != "final")
            return ids

    return url, asyncio.run(make())


@pytest.mark.parametrize(
    ("task", "check", "reason"),
    [
        ("final", "not retried", "given up for good"),
        ("noisy", "many retries", "failure 1 of at most 4 executions"),
        ("distant", "long delays", "constant 2 h"),
    ],
    ids=["not retrying", "too many retries", "delays too long"],
)
def test_o18_doctor_and_why_answer(trouble: tuple[str, dict[str, str]], task: str, check: str, reason: str) -> None:
    """The doctor finds the trouble, names the task and gives advice; the story of the job itself holds the reason."""
    url, ids = trouble
    found = run_command("doctor", "--store", url, "--json").json["findings"]
    [finding] = [one for one in found if one["check"] == check]
    assert (finding["level"], task in finding["message"]) == ("warn", True)
    assert finding["advice"]
    told = run_command("why", ids[task], "--store", url)
    assert told.code == 0
    assert reason in told.out
