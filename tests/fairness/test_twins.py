"""Broken twins: with a part of the planner switched off, the same crowds must break the bound, or the test of it shows nothing."""

from __future__ import annotations

import pytest

from mulligan import Mulligan, Queue
from mulligan.core.job import Job
from mulligan.policy import planner
from mulligan.policy.planner import START, Account
from tests.fairness.crowd import Crowd, Start, backlog, check_starts

ONE_BY_ONE = {"concurrency": 1, "ahead": 0}
IN_BATCHES = {"concurrency": 100, "ahead": 0}


async def started_by(claimers: int, settings: dict[str, int], starts: int = 600) -> list[Start]:
    async with Mulligan("memory://") as app:
        crowd = Crowd(app, Queue("q"))
        for lane, count in backlog(starts, 0.5, claimers, settings).items():  # more than fair starts would need
            await crowd.store_jobs(count, lane)
        return crowd.while_all_wait(await crowd.run(starts, [crowd.worker(**settings) for _ in range(claimers)]))


def grouped(account: Account, fresh: list[Job], retry: list[Job]) -> list[Job]:
    """A batch in the order in which the store gave it, lane by lane."""
    account.started(len(fresh) + len(retry), len(retry))
    return [*fresh, *retry]


@pytest.mark.parametrize("claimers", [1, 4])
@pytest.mark.parametrize("settings", [ONE_BY_ONE, IN_BATCHES], ids=["one by one", "in batches"])
async def test_the_real_planner_keeps_the_bound(claimers: int, settings: dict[str, int]) -> None:
    """What the twins below are measured against."""
    check_starts(await started_by(claimers, settings), 0.2, claimers)


@pytest.mark.parametrize("claimers", [1, 4])
async def test_batches_grouped_by_lane_break_the_bound(monkeypatch: pytest.MonkeyPatch, claimers: int) -> None:
    """Each claim of a hundred brings exactly its twenty retries; started behind the eighty fresh jobs, they come up to sixteen late."""
    monkeypatch.setattr(planner, "_by_credit", grouped)
    with pytest.raises(AssertionError, match="less than its share"):
        check_starts(await started_by(claimers, IN_BATCHES), 0.2, claimers)


@pytest.mark.parametrize("begins_at", [0, START - 1])
async def test_accounts_that_are_not_carried_break_the_bound(monkeypatch: pytest.MonkeyPatch, begins_at: int) -> None:
    """Without a memory of what was started, a fifth of one slot is never a retry, or always one (B8)."""
    monkeypatch.setattr(Account, "started", lambda account, starts, own: setattr(account, "balance", begins_at))
    with pytest.raises(AssertionError, match="less than its share"):
        check_starts(await started_by(4, ONE_BY_ONE), 0.2, 4)


async def test_accounts_forgotten_after_each_batch_break_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven slots owe the retries 1.4 starts each time: rounded down every time, the debt grows without end."""
    monkeypatch.setattr(Account, "due", lambda account, starts: account.share * starts // START)
    with pytest.raises(AssertionError, match="retry lane"):
        check_starts(await started_by(4, {"concurrency": 7, "ahead": 0}), 0.2, 4)
