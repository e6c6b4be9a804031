"""Simulated processes stand still, go on and die as real ones do."""

from __future__ import annotations

import asyncio

import pytest

from mulligan.sim.process import Process, SimLoop, Standstill, inside


async def _tick(loop: SimLoop, seen: list[float]) -> None:
    try:
        while True:
            seen.append(round(loop.virtual_s, 3))
            await asyncio.sleep(1)
    finally:
        seen.append(-1.0)


def _run(loop: SimLoop, seconds: float) -> None:
    loop.run_until_complete(asyncio.sleep(seconds))


def test_a_stopped_process_goes_on_where_it_stood() -> None:
    """Time passes meanwhile, and its timers fire when it goes on."""
    loop, process, seen = SimLoop(), Process(0), list[float]()
    inside(process, loop.create_task, _tick(loop, seen))
    _run(loop, 1.5)
    process.state = "stopped"
    _run(loop, 3)
    assert seen == [0.0, 1.0]
    loop.go_on(process)
    _run(loop, 1.2)
    assert seen == [0.0, 1.0, 4.5, 5.5]
    loop.end([process])


def test_nothing_of_a_killed_process_runs() -> None:
    """Not even what stands in its `finally`, until the world is taken apart."""
    loop, process, seen = SimLoop(), Process(0), list[float]()
    inside(process, loop.create_task, _tick(loop, seen))
    _run(loop, 1.5)
    loop.kill(process)
    _run(loop, 5)
    assert seen == [0.0, 1.0]
    loop.end([process])
    assert seen[-1] == -1.0


def test_a_process_may_have_a_wrong_clock() -> None:
    """Its clock is set otherwise and runs slower, so its seconds are longer."""
    loop, process, seen = SimLoop(), Process(0, rate=0.5, offset_s=100.0), list[float]()

    async def look() -> None:
        before_s = loop.time()
        await asyncio.sleep(1)
        seen.extend((before_s, loop.time(), loop.virtual_s))

    inside(process, loop.create_task, look())
    _run(loop, 3)
    assert seen == pytest.approx([100.0, 101.0, 2.0])
    loop.end([process])


def test_a_world_in_which_all_wait_for_nothing_is_seen() -> None:
    """Instead of hanging."""
    loop = SimLoop()
    with pytest.raises(Standstill):
        loop.run_until_complete(loop.create_future())
    loop.end([])
