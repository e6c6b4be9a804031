"""Handlers that do not stop when told to: their process is ended, and only they are charged."""

from __future__ import annotations

import pytest

from tests.supervisor.fleet import Fleet, is_alive

LONG = 3_600


@pytest.mark.parametrize("task", ["deadlock", "ignores_everything", "computes"])
async def test_a_handler_that_ignores_its_time_out_is_ended_with_its_process(fleet: Fleet, task: str) -> None:
    """A deadlocked thread, a loop that swallows cancellations, C code that holds the interpreter: the job fails of its time-out, and what
    ran beside it goes back uncounted and runs again (faults 22, 25)."""
    await fleet.start("--kill-after", 0.4, lease=LONG)
    gate = fleet.folder / "gate"
    beside = await fleet.enqueue("gated", str(gate))
    [run] = await fleet.noted("RUN", beside)
    culprit = await fleet.enqueue(task, max_retries=0)
    job = await fleet.settled(culprit, "failed")
    assert (job.failures, job.crashes, job.attempts) == (1, 0, 1)
    [record] = job.history
    assert record.outcome == "timeout"
    assert job.last_error is not None
    assert job.last_error.message == "timed out after 0.3 s; it did not stop, so its process was ended"
    assert not is_alive(run.pid)
    gate.touch()
    job = await fleet.settled(beside)
    assert (job.crashes, job.failures, job.attempts, job.releases) == (0, 0, 1, 1)


async def test_a_time_out_that_is_obeyed_ends_no_process(fleet: Fleet) -> None:
    """The executor cancels at the time-out, as without a supervisor: the next job runs in the same process."""
    await fleet.start("--kill-after", 0.4, lease=LONG)
    late = await fleet.enqueue("slow", 1_000, timeout=0.1, max_retries=0)
    [run] = await fleet.noted("RUN", late)
    assert (await fleet.settled(late, "failed")).failures == 1
    job = await fleet.settled(await fleet.enqueue("quick"))
    assert job.result == run.pid


async def test_a_cancel_that_is_ignored_ends_the_process(fleet: Fleet) -> None:
    """An operator cancels a job whose thread does not listen: it is cancelled when its code has stopped, not before."""
    await fleet.start("--kill-after", 0.4, lease=0.6)
    job_id = await fleet.enqueue("waits_in_a_thread", 1_000, timeout=None)
    [run] = await fleet.noted("RUN", job_id)
    assert await fleet.app.cancel(job_id) == "requested"
    job = await fleet.settled(job_id, "cancelled")
    assert not is_alive(run.pid)
    assert [record.outcome for record in job.history] == ["cancel"]
    assert (await fleet.settled(await fleet.enqueue("quick"))).attempts == 1
