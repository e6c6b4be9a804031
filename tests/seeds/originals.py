"""The logic of the source designs, bugs included, in a few lines each: what the tests of those bugs compare ours with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any


class OriginalTable:
    """The micro queue's table as its design writes to it: by id alone, one field at a time, with its sweeps."""

    def __init__(self, **task: Any) -> None:
        self.task = {"status": "pending", "attempts": 0, "next_retry_at": None, "updated_at": 0, **task}

    def claim(self, now: float) -> bool:
        due = self.task["next_retry_at"] is None or self.task["next_retry_at"] <= now
        if self.task["status"] == "pending" and due:
            self.task.update(status="processing", updated_at=now)
            return True
        return False

    def mark_done(self, now: float) -> None:
        self.task.update(status="done", updated_at=now)

    def mark_retry(self, now: float, delay: float) -> None:
        self.task.update(status="pending", next_retry_at=now + delay, updated_at=now, attempts=self.task["attempts"] + 1)

    def reclaim_stuck(self, now: float) -> None:
        if self.task["status"] == "processing" and self.task["updated_at"] < now - 600:
            self.task.update(status="pending", updated_at=now, attempts=self.task["attempts"] + 1)

    def fail_exhausted(self) -> None:
        if self.task["attempts"] > 10 and self.task["status"] in ("pending", "processing"):
            self.task.update(status="failed")


class OriginalRow:
    """SpringQueuePro's row: the failure is saved, then the retry, and an operator may come in between."""

    def __init__(self) -> None:
        self.status = "IN_PROGRESS"
        self.submissions = 0

    def requeue(self) -> bool:
        if self.status != "FAILED":
            return False
        self.status, self.submissions = "QUEUED", self.submissions + 1
        return True

    def fail_and_retry(self, in_between: Callable[[], object]) -> None:
        self.status = "FAILED"
        in_between()
        self.status, self.submissions = "QUEUED", self.submissions + 1


def original_next_retry(task: dict[str, Any]) -> timedelta:
    """The micro queue's schedule_next_retry, without jitter."""
    policy = task.get("backoff_policy", {})
    attempts = int(task.get("attempts", 0)) + 1
    raw = min(policy.get("base_sec", 5) * policy.get("factor", 2.0) ** max(0, attempts - 1), policy.get("max_sec", 1_800))
    return timedelta(seconds=raw)


async def original_region_loop(fresh: asyncio.Queue[str], retries: asyncio.Queue[str], ran: list[str]) -> None:
    """The region queue's processing loop: looks at the retries once, then waits for fresh jobs alone."""
    while True:
        ran.append(await (fresh if retries.empty() else retries).get())


async def original_execute(lasts_s: float, put_back: list[str]) -> None:
    """The region queue's execution: what fails is put back, but a cancellation is no Exception."""
    try:
        await asyncio.sleep(lasts_s)
    except Exception:  # noqa: BLE001 - the original's own clause
        put_back.append("job")
