"""The thread a network driver lives in."""

from __future__ import annotations

import asyncio
import threading

import pytest

from mulligan.core.errors import IllegalMove
from mulligan.sim.virtual import LoopClock, run_virtual
from mulligan.stores.network.home import Home


async def name_of_thread() -> str:
    await asyncio.sleep(0)
    return threading.current_thread().name


async def test_work_runs_on_the_home_thread() -> None:
    """A coroutine handed over runs there, whichever loop asked; its answer and its errors come back."""
    home = Home("home-of-test")

    async def fail() -> None:
        raise ValueError("as told")

    assert await home.run(name_of_thread) == "home-of-test"
    assert await asyncio.to_thread(lambda: asyncio.run(home.run(name_of_thread))) == "home-of-test"
    with pytest.raises(ValueError, match="as told"):
        await home.run(fail)
    home.shutdown()


async def test_a_caller_that_gives_up_does_not_interrupt_the_work() -> None:
    """Cancelling the wait leaves the work running to its end: a driver must not be stopped in the middle of a call."""
    home = Home("home-of-test")
    begun, finished = threading.Event(), threading.Event()
    gate = threading.Event()

    async def work() -> None:
        begun.set()
        while not gate.is_set():
            await asyncio.sleep(0.001)
        finished.set()

    waiting = asyncio.create_task(home.run(work))
    await asyncio.to_thread(begun.wait, 10)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not finished.is_set()
    gate.set()
    assert await asyncio.to_thread(finished.wait, 10)
    home.shutdown()


async def test_shutdown_waits_for_what_was_handed_over() -> None:
    """Work that was begun before is finished; work that comes after is refused; driver's left-over tasks are ended."""
    home = Home("home-of-test")
    left: list[asyncio.Task[None]] = []

    async def leave_something_behind() -> None:
        left.append(asyncio.get_running_loop().create_task(asyncio.sleep(3_600)))

    async def slow() -> str:
        await asyncio.sleep(0.05)
        return "finished"

    await home.run(leave_something_behind)
    future = home.submit(lambda: slow())
    await asyncio.to_thread(home.shutdown)
    assert future.result(0) == "finished"
    assert left[0].cancelled()
    with pytest.raises(IllegalMove, match="closed"):
        home.submit(lambda: slow())
    home.soon(lambda: left.clear())
    assert left


def test_virtual_time_stands_still_while_the_home_works() -> None:
    """A loop on virtual time counts what is under way here, so that its clock does not run away from a real server."""

    async def main(clock: LoopClock) -> int:
        home = Home("home-of-test")
        before_us = clock.now_us()
        await asyncio.wait_for(home.run(lambda: asyncio.sleep(0.05)), 3_600)
        took_us = clock.now_us() - before_us
        home.shutdown()
        return took_us

    assert run_virtual(main) == 0
