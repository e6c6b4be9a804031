"""`--processes N`: a parent that starts N workers, passes signals on, and starts anew what died. It holds no jobs itself."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Sequence

from mulligan.cli.exits import NO, OK, USAGE
from mulligan.cli.serving import SIGNALS

log = logging.getLogger("mulligan.fleet")
PAUSE_MIN_S, PAUSE_MAX_S = 0.5, 30.0
STEADY_S = 10.0  # a child that lived so long starts the count of quick deaths anew
KILL_AFTER_S = 20.0  # beyond the grace time; children end by themselves well before


class Fleet:
    """Starting → running → stopping. Children have a process group of their own, so that Ctrl-C reaches them once, through here."""

    def __init__(self, command: Sequence[str], processes: int, grace_s: float) -> None:
        self._command = command
        self._processes = processes
        self._grace_s = grace_s
        self._children: set[asyncio.subprocess.Process] = set()
        self._stopping = asyncio.Event()
        self._code = OK
        self._read_end, self._write_end = os.pipe()  # its end tells the children that this process is gone

    async def run(self) -> int:
        """Keeps the children running until told to stop; the exit code."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._on_signal)
        await asyncio.gather(*(self._keep(place) for place in range(1, self._processes + 1)))
        return self._code

    def _on_signal(self) -> None:
        self._stopping.set()
        self._tell_children()

    def _tell_children(self) -> None:
        """SIGTERM, whatever came here: it also ends a child that does not listen yet, without a word."""
        for child in self._children:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                child.send_signal(signal.SIGTERM)

    async def _keep(self, place: int) -> None:
        """Runs the child of one place, again and again."""
        loop = asyncio.get_running_loop()
        pause_s = PAUSE_MIN_S
        while not self._stopping.is_set():
            started = loop.time()
            code = await self._run_child(place)
            if self._stopping.is_set():
                self._code = max(self._code, OK if code in (OK, -signal.SIGTERM) else NO)
                return
            if code == USAGE:  # it would say the same again
                self._code = code
                self._stopping.set()
                self._tell_children()
                return
            if loop.time() - started > STEADY_S:
                pause_s = PAUSE_MIN_S
            log.error("worker process %d ended with %s; starting another one in %g s", place, _how(code), pause_s)
            await self._sleep(pause_s)
            pause_s = min(pause_s * 2, PAUSE_MAX_S)

    async def _run_child(self, place: int) -> int:
        child = await asyncio.create_subprocess_exec(
            *self._command,
            "--parent-fd",
            str(self._read_end),
            pass_fds=[self._read_end],
            process_group=0,
            stdin=asyncio.subprocess.DEVNULL,
        )
        self._children.add(child)
        log.info("worker process %d is %d", place, child.pid)
        if self._stopping.is_set():  # told while it was being started
            child.terminate()
        try:
            return await self._wait(child)
        finally:
            self._children.discard(child)

    async def _wait(self, child: asyncio.subprocess.Process) -> int:
        """The child's exit code. Once stopping, one that outlives its grace time by far is killed."""
        ended = asyncio.ensure_future(child.wait())
        told = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait([ended, told], return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        done, _ = await asyncio.wait([ended], timeout=self._grace_s + KILL_AFTER_S if not ended.done() else None)
        if not done:
            log.error("worker process %d does not end; killing it", child.pid)
            child.kill()
        return await ended

    async def _sleep(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)


def _how(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def child_command(target: str, options: Sequence[str]) -> list[str]:
    """The command of one child: the same one, for a single process."""
    return [sys.executable, "-m", "mulligan", "worker", target, *options, "--processes", "1"]
