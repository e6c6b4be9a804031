"""Steps of a job whose worker is killed: a receipt outlives its process, and an effect without one comes again."""

from __future__ import annotations

from mulligan import Mulligan
from tests.processes.children import Nursery, until
from tests.processes.ledger import Line, read
from tests.processes.test_faults import noted


async def test_a_killed_worker_leaves_its_receipts(nursery: Nursery, app: Mulligan) -> None:
    """kill -9 with two jobs at work: one behind its step, which is not repeated, and one inside it, which is, under the same key."""
    gate, closed = nursery.folder / "open", nursery.folder / "closed"
    gate.touch()
    victim = nursery.server(lease=1.0, poll=0.05, sweep=0.05, concurrency=2)
    behind = await app.enqueue("stepped", args=[str(gate), str(closed)])
    inside = await app.enqueue("stepped", args=[str(closed), str(gate)])
    await until(lambda: noted(nursery.ledger, "RUN", job=behind.id))
    await until(lambda: noted(nursery.ledger, "PAID", job=inside.id))
    victim.kill()
    closed.touch()
    heir = nursery.server(lease=1.0, poll=0.05, sweep=0.05, concurrency=2)
    assert await behind.result(timeout=30) == victim.pid
    assert await inside.result(timeout=30) == heir.pid
    paid: dict[str, list[Line]] = {
        job: [line for line in read(nursery.ledger, "PAID") if line.job == job] for job in (behind.id, inside.id)
    }
    assert [(line.fence, line.pid) for line in paid[behind.id]] == [(1, victim.pid)]
    assert [(line.fence, line.pid) for line in paid[inside.id]] == [(1, victim.pid), (2, heir.pid)]
    assert len({line.more for line in paid[inside.id]}) == 1
    kept = await app.store.receipts([behind.id, inside.id])
    assert [[(receipt.name, receipt.fence, receipt.value) for receipt in own] for own in kept] == [
        [("pay", 1, victim.pid)],
        [("pay", 2, heir.pid)],
    ]
    for handle in (behind, inside):
        job = await handle.job()
        assert (job.status, job.crashes, job.failures) == ("done", 1, 0)
    heir.finish()
