"""The link: messages in order, nothing lost when one side dies, and nobody blocked by a side that does not read."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator

import pytest

from mulligan.core.contract import Renewal, Store
from mulligan.core.limits import Bucket, Slots
from mulligan.stores import open_store
from mulligan.worker.cells import Cells, monotonic_us, new_memory
from mulligan.worker.child import Child
from mulligan.worker.child_link import ChildLink
from mulligan.worker.link import Answers, Claiming, Dropped, Feed, Held, Hello, Holding, Leaving, Link, Message, Report, Stop
from tests.builders import claim, new_job, put_and_claim, worker_info

END = Stop("the other side has closed")


class Pair:
    """Both ends, and what each has heard."""

    def __init__(self) -> None:
        one, two = socket.socketpair()
        self.heard: list[Message] = []
        self.near = Link(one, lambda message: None, lambda: None)
        self.far = Link(two, self.heard.append, lambda: self.heard.append(END))


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    """A link within this process."""
    made = Pair()
    yield made
    made.near.close()
    made.far.close()


@pytest.fixture
async def memory() -> AsyncIterator[Store]:
    """A store to get jobs from."""
    store = open_store("memory://", clock=None)
    await store.open()
    yield store
    await store.close()


async def test_every_message_arrives_as_it_was_sent(pair: Pair, memory: Store) -> None:
    """All kinds, in order, with jobs and limits in them."""
    info = worker_info(limits={"q": (Slots(most=2), Bucket(key="b", rate_u=1, burst_u=1))})
    messages: list[Message] = [
        Hello("w"),
        Claiming("c"),
        Held("c", [Holding(0, "a", 1, None), Holding(1, "b", 2, 5)], [Holding(-1, "c", 3)]),
        Dropped([1, 0]),
        Report(info),
        Answers([Renewal(job_id="a", fence=1, held=False)]),
        Stop("enough"),
        Feed(0, await put_and_claim(memory)),
        Leaving(),
    ]
    pair.near.listen()
    for message in messages:
        pair.near.send(message)
    pair.far.drain()
    assert pair.heard == messages


async def test_what_was_sent_before_the_end_is_read_after_it(pair: Pair) -> None:
    """The kernel keeps it; half a message at the end is not taken for one."""
    pair.near.listen()
    pair.near.send(Dropped(list(range(1_000))))
    pair.near._socket.send((500).to_bytes(4, "little") + b"half of it")
    pair.near.close()
    pair.far.drain()
    assert pair.heard == [Dropped(list(range(1_000))), END]


async def test_a_side_that_does_not_read_blocks_nobody(pair: Pair) -> None:
    """What is sent waits in a backlog; `sent` returns when the other side has taken everything, and not before."""
    pair.near.listen()
    big = Dropped(list(range(200_000)))
    for _ in range(5):
        pair.near.send(big)
    assert pair.near.is_behind
    waiting = asyncio.create_task(pair.near.sent())
    await asyncio.sleep(0)
    assert not waiting.done()
    pair.far.listen()
    await asyncio.wait_for(waiting, 10)
    while len(pair.heard) < 5:
        await asyncio.sleep(0)
    assert pair.heard == [big] * 5
    assert not pair.near.is_behind


async def test_nobody_waits_for_a_side_that_is_gone(pair: Pair) -> None:
    """Its end is told once, and sending to it is without effect."""
    pair.far.listen()
    pair.near.close()
    while not pair.heard:
        await asyncio.sleep(0)
    pair.far.send(Stop("nobody hears this"))
    await asyncio.wait_for(pair.far.sent(), 10)
    assert pair.heard == [END]


async def test_a_message_that_nobody_understands_hides_no_other(pair: Pair) -> None:
    """It is left out; what comes before and after it is heard."""
    pair.near.listen()
    pair.near.send(Hello("one"))
    pair.near._socket.send((3).to_bytes(4, "little") + b"\xc1\xc1\xc1")
    pair.near.send(Hello("two"))
    pair.far.drain()
    assert pair.heard == [Hello("one"), Hello("two")]


async def test_a_message_that_is_too_large_ends_the_link(pair: Pair) -> None:
    """A length that no message has is not waited for."""
    pair.near._socket.send((2**31).to_bytes(4, "little"))
    pair.far.drain()
    assert pair.heard == [END]


def test_cells_are_shared_and_outlive_a_process() -> None:
    """What one process writes another one reads, also when the first is dead: started, ended, not started."""
    fd = new_memory(3)
    if os.fork() == 0:
        cells = Cells(fd)
        cells.start(0)
        cells.start(1)
        cells.end(1)
        os._exit(0)
    os.wait()
    cells = Cells(fd)
    os.close(fd)
    assert 0 < cells[0] <= monotonic_us()
    assert -monotonic_us() <= cells[1] < 0
    assert cells[2] == 0
    cells.clear(0)
    assert cells[0] == 0
    cells.close()


async def test_a_lease_is_sure_by_its_own_renewal_only(memory: Store) -> None:
    """Two jobs in the hands of a child, past the time it had for them: of these, the one that was renewed may start, and no other."""
    script = "import signal; signal.pause()"
    parent = Child(1, [sys.executable, "-c", script], 3, lambda _child, _jobs: None)
    own, other = socket.socketpair()
    parent._link.close()
    parent._link = Link(own, parent._on_message, lambda: None)
    fd = new_memory(3)
    parent.cells = Cells(fd)
    link = ChildLink(os.dup(other.fileno()), fd)
    other.close()
    link.listen()
    await memory.insert([new_job() for _ in range(3)])
    jobs = (await claim(memory, total=3)).jobs
    await link.take("c-1", jobs[:2])
    kept, refused = (link.new_run(job, 0.0) for job in jobs[:2])
    until_us = monotonic_us() + 60_000_000
    parent.renewed([], until_us)
    assert not kept.is_sure(1.0)
    renewals = [Renewal(job_id=jobs[0].id, fence=1, held=True), Renewal(job_id=jobs[1].id, fence=1, held=False)]
    parent.renewed(renewals, until_us)
    assert kept.is_sure(1.0)
    assert not refused.is_sure(1.0)
    link.drop((jobs[0].id, 1))
    await link.take("c-2", jobs[2:])
    assert not link.new_run(jobs[2], 0.0).is_sure(1.0), "it has the cell, and the lease, of another"
    parent.kill()
    await parent.ended
    link.close()
    parent.close()


async def test_a_child_tells_its_jobs_and_frees_cells_before_they_are_used_again(memory: Store) -> None:
    """With two cells: a third job waits until one is free; the parent hears of the free cell first."""
    parent, child = socket.socketpair()
    heard: list[Message] = []
    end = Link(parent, heard.append, lambda: None)
    link = ChildLink(os.dup(child.fileno()), new_memory(2))
    child.close()
    link.listen()
    await memory.insert([new_job() for _ in range(3)])
    jobs = (await claim(memory, claim_id="c-1", total=3)).jobs
    await link.claiming("c-1")
    assert await link.take("c-1", jobs[:2]) == jobs[:2]
    link.new_run(jobs[0], 0.0).begin()
    more = asyncio.create_task(link.take("c-2", jobs[2:]))
    await asyncio.sleep(0)
    assert not more.done()
    link.drop((jobs[0].id, 1))
    link.drop((jobs[0].id, 1))  # once is enough
    assert await asyncio.wait_for(more, 10) == jobs[2:]
    end.drain()
    first = [Holding(0, jobs[0].id, 1, None), Holding(1, jobs[1].id, 1, None)]
    assert heard == [Claiming("c-1"), Held("c-1", first), Dropped([0]), Held("c-2", [Holding(0, jobs[2].id, 1, None)])]
    assert link.cells[0] == 0, "the cell still says that its job has started, which was another one"
    link.close()
    end.close()
