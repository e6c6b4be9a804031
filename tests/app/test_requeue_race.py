"""A requeue that was decided on a job as it was does not overwrite what has happened to it since."""

from __future__ import annotations

from typing import Any

from mulligan import Mulligan
from tests.faults import FaultyStore


class FailsMeanwhile(FaultyStore):
    """A store in which a held job fails for good right after somebody has read it."""

    lease: Any = None

    async def get(self, ids: Any) -> Any:
        found = await self._inner.get(ids)
        if self.lease is not None:
            lease, self.lease = self.lease, None
            assert await lease.fail("the newest error", retry=False)
        return found


async def test_a_job_that_fails_after_it_was_read_is_not_requeued(app: Mulligan) -> None:
    """It was running when the operator looked: the answer is False, and its error and its history stay."""
    app.declare("work")
    handle: Any = await app.enqueue("work")
    store = FailsMeanwhile(app.store)
    [store.lease] = await app.claim()
    app._admin._store = store
    assert not await app.requeue(handle.id)
    job = await handle.job()
    assert (job.status, job.generation) == ("failed", 1)
    assert job.last_error is not None
    assert job.last_error.message == "the newest error"
    assert await app.requeue(handle.id)
