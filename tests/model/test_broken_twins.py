"""The machine must be able to fail: each of these breaks one rule of the memory store, and the machine has to notice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from msgspec.structs import replace

from mulligan.core.change import Change
from mulligan.core.job import Job
from mulligan.core.schedule import Tick
from mulligan.stores import memory, memory_index, memory_rows, memory_schedules, open_store
from tests.model.machine import StoreMachine

Patch = Callable[[pytest.MonkeyPatch], None]


def ignore_the_fence(patch: pytest.MonkeyPatch) -> None:
    """Whoever comes may settle a processing job (A1)."""
    patch.setattr(memory_rows, "is_held", lambda row, fence: row.status == "processing")


def ignore_the_status(patch: pytest.MonkeyPatch) -> None:
    """A finished job can be settled again by its last holder."""
    patch.setattr(memory_rows, "is_held", lambda row, fence: row.fence == fence)


def forget_the_refund(patch: pytest.MonkeyPatch) -> None:
    """A snooze or release still costs an attempt."""

    def settled(row: Job, change: Change, now_us: int) -> Job:
        return replace(memory_rows.settled(row, change, now_us), attempts=max(row.attempts, change.attempts))

    patch.setattr(memory, "settled", settled)


def prune_live_jobs(patch: pytest.MonkeyPatch) -> None:
    """Retention takes jobs that are overdue for ones that are finished."""
    finished = memory_index.Index.finished

    def wrong(self: memory_index.Index, status: str, until_us: int, limit: int) -> list[str]:
        return [*self.lapsed(until_us, limit), *finished(self, status, until_us, limit)][:limit]

    patch.setattr(memory_index.Index, "finished", wrong)


def ignore_the_unique_key(patch: pytest.MonkeyPatch) -> None:
    """Every key is free."""
    patch.setattr(memory_index.Index, "owner", lambda self, queue, unique_key: None)
    leave: Any = memory_index.Index._leave

    def forgiving(self: memory_index.Index, job: Job) -> None:
        if job.unique_key is not None:
            self._owners.setdefault((job.queue, job.unique_key), job.id)
        leave(self, job)

    patch.setattr(memory_index.Index, "_leave", forgiving)


def reset_the_fence(patch: pytest.MonkeyPatch) -> None:
    """A requeue starts the fence anew (C14)."""

    def settled(row: Job, change: Change, now_us: int) -> Job:
        after = memory_rows.settled(row, change, now_us)
        return replace(after, fence=0) if change.cause == "requeue" else after

    patch.setattr(memory, "settled", settled)


def let_the_cancel_lose(patch: pytest.MonkeyPatch) -> None:
    """A retry forgets that the job was cancelled in the meantime."""

    def settled(row: Job, change: Change, now_us: int) -> Job:
        return replace(memory_rows.settled(replace(row, cancel_requested=False), change, now_us), cancel_requested=row.cancel_requested)

    patch.setattr(memory, "settled", settled)


def leave_the_lease(patch: pytest.MonkeyPatch) -> None:
    """A settled job keeps its owner (A36, B14)."""

    def settled(row: Job, change: Change, now_us: int) -> Job:
        return replace(memory_rows.settled(row, change, now_us), lease_owner=row.lease_owner)

    patch.setattr(memory, "settled", settled)


def claim_paused_queues(patch: pytest.MonkeyPatch) -> None:
    """A pause is written down and not obeyed."""
    patch.setattr(memory.MemoryStore, "_is_paused", lambda self, queue: False)


def fire_from_anywhere(patch: pytest.MonkeyPatch) -> None:
    """Every scheduler's tick counts, wherever the schedule stands."""
    move = memory_schedules.Schedules.move

    def wrong(self: memory_schedules.Schedules, tick: Tick) -> bool:
        known = self._schedules.get(tick.name)
        return move(self, tick if known is None else replace(tick, expected_us=known.next_tick_us))

    patch.setattr(memory_schedules.Schedules, "move", wrong)


def count_the_wait_from_the_claim(patch: pytest.MonkeyPatch) -> None:
    """A claimed job takes the time of its claim for the time it fell due."""

    def claimed(row: Job, claim_id: str, owner: str, now_us: int, lease_us: int) -> Job:
        return replace(memory_rows.claimed(row, claim_id, owner, now_us, lease_us), due_us=now_us)

    patch.setattr(memory, "claimed", claimed)


def keep_the_first_due_time(patch: pytest.MonkeyPatch) -> None:
    """A job that goes back to wait is still due at the time it had before."""

    def settled(row: Job, change: Change, now_us: int) -> Job:
        return replace(memory_rows.settled(row, change, now_us), due_us=row.due_us)

    patch.setattr(memory, "settled", settled)


TWINS: list[Patch] = [
    ignore_the_fence,
    ignore_the_status,
    forget_the_refund,
    prune_live_jobs,
    ignore_the_unique_key,
    reset_the_fence,
    let_the_cancel_lose,
    leave_the_lease,
    claim_paused_queues,
    fire_from_anywhere,
    count_the_wait_from_the_claim,
    keep_the_first_due_time,
]


@pytest.mark.parametrize("twin", TWINS)
def test_broken_twin_is_found(twin: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Store and model share the bug here, so that the answers agree; the ledger's account alone must find it."""
    twin(monkeypatch)
    quick = settings(
        max_examples=400,
        stateful_step_count=40,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    machine: Any = lambda: StoreMachine(lambda clock: open_store("memory://", clock=clock))  # noqa: E731
    with pytest.raises(AssertionError):
        run_state_machine_as_test(machine, settings=quick)
