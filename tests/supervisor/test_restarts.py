"""Children that die again and again, and handlers that harm what they share."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from mulligan.cli.fleet import child_command
from mulligan.worker.restarts import PAUSE_MAX_S, STEADY_S, Restarts
from mulligan.worker.supervisor import Supervisor
from mulligan.worker.supervisor_settings import SupervisorSettings
from tests.supervisor.fleet import Fleet

LONG = 3_600


def test_pauses_grow_and_start_anew() -> None:
    """The first restart is at once; then 0.5 s, doubled up to 30 s; a child that has worked or lived for a while begins anew."""
    restarts = Restarts()
    assert [restarts.pause_s(0.1, 0) for _ in range(9)] == [0, 0.5, 1, 2, 4, 8, 16, PAUSE_MAX_S, PAUSE_MAX_S]
    assert restarts.pause_s(0.1, finished=1) == 0
    assert restarts.pause_s(0.1, finished=0) == 0.5
    assert restarts.pause_s(STEADY_S, finished=0) == 0
    assert restarts.pause_s(0.1, finished=0) == 0.5


async def test_a_child_that_hangs_is_replaced(fleet: Fleet) -> None:
    """One that says nothing for long, and runs nothing that could be the reason, is killed: it would keep its jobs for ever."""
    worker = fleet.app.worker(lease=LONG)
    command = child_command("tests.supervisor.program:app", ["--store", fleet.url, "--lease", "0.3"])
    supervisor = Supervisor(worker.equipment, worker.settings, SupervisorSettings(), command, command)
    supervisor._silent_s = 0.5
    running = asyncio.create_task(supervisor.run())
    await fleet.until(lambda: supervisor.children_up == 1)
    [first] = supervisor._children
    os.kill(first.pid, signal.SIGSTOP)
    await fleet.until(lambda: first.ended.done() and supervisor.children_up == 1)
    assert first.was_killed
    supervisor.stop()
    assert await running == 0


@pytest.mark.parametrize("how", ["close", "flood"])
async def test_a_handler_that_ruins_its_output_harms_nobody(fleet: Fleet, how: str) -> None:
    """Standard output closed, or flooded with 20 MB: the worker lives, and so does its supervisor (fault 28)."""
    supervisor = await fleet.start(lease=LONG)
    first = await fleet.settled(await fleet.enqueue("ruins_stdout", how))
    after = await fleet.settled(await fleet.enqueue("quick"))
    assert after.result == first.result
    assert await fleet.stop(supervisor) == 0


async def test_running_out_of_memory_is_an_error_like_any_other(fleet: Fleet) -> None:
    """Under a limit of memory a handler gets MemoryError: the job fails, its process lives (fault 21)."""
    supervisor = await fleet.start(lease=LONG)
    job = await fleet.settled(await fleet.enqueue("takes_all_memory", max_retries=0), "failed")
    assert job.last_error is not None
    assert (job.last_error.type, job.crashes) == ("MemoryError", 0)
    [run] = fleet.lines("RUN", job.id)
    assert (await fleet.settled(await fleet.enqueue("quick"))).result == run.pid
    assert await fleet.stop(supervisor) == 0
