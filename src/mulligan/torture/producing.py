"""The producers of a torture run as their owner sees them: fed with ranges of jobs, killed in the middle of one, replaced."""

from __future__ import annotations

import asyncio

from mulligan.torture.crew import Crew
from mulligan.torture.ledger import Ledger
from mulligan.torture.plan import Plan
from mulligan.torture.tail import Tail

BATCH = 25
LOOK_S = 0.02


class Producers:
    """One producer at a time. Numbers of jobs whose outcome nobody knows are not used again: new ones take their place."""

    def __init__(self, plan: Plan, crew: Crew, tail: Tail) -> None:
        self._plan = plan
        self._crew = crew
        self._tail = tail
        self._next = 0
        self.acknowledged = 0
        self._process: asyncio.subprocess.Process | None = None
        self._busy = asyncio.Event()  # a range is being stored
        self.allowed = 0  # how many may be stored by now
        self.is_over = asyncio.Event()  # no more faults follow, so no more jobs than planned are needed

    async def run(self) -> None:
        """Stores jobs until as many are acknowledged as the plan has, and a few more if faults are left by then."""
        while self.acknowledged < self._plan.jobs or not self.is_over.is_set():
            if self._process is None:
                self._process = await self._crew.start_producer()
            if self.acknowledged >= self.allowed:
                await asyncio.sleep(LOOK_S)
                continue
            count = min(BATCH, self.allowed - self.acknowledged)
            first, self._next = self._next, self._next + count
            if await self._stored(self._process, first, count):
                self.acknowledged += count
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    async def _stored(self, process: asyncio.subprocess.Process, first: int, count: int) -> bool:
        """Whether the producer has said that this range is stored; if it ended before, nobody knows."""
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{first} {count}\n".encode())
        self._busy.set()
        answer = await process.stdout.readline()
        self._busy.clear()
        if answer.startswith(b"stored"):
            return True
        await process.wait()
        self._process = None
        return False

    async def kill(self, ledger: Ledger, after_s: float) -> int:
        """kill -9, so soon after it was given a range to store; its pid."""
        self.allowed = max(self.allowed, self.acknowledged + BATCH)
        await self._busy.wait()
        await asyncio.sleep(after_s)
        process = self._process
        if process is None or process.returncode is not None:
            return await self.kill(ledger, after_s)
        ledger.note("NEMESIS", step="start", how="kill producer", pids=(process.pid,))
        process.kill()
        await process.wait()
        return process.pid
