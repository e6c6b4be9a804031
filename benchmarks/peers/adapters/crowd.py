"""A hundred callers in one process, each of which waits for its own enqueue before the next. Standard library only.

They call as fast as they can, or at moments chosen by chance that come to a given rate, whether or not the worker is behind.
"""

from __future__ import annotations

import asyncio
import inspect
import random
import threading
import time
from collections.abc import Sequence
from typing import Any

CALLERS = 100


class Crowd:
    """The callers, and when each job was sent."""

    def __init__(self, sender: Any, kind: str, numbers: Sequence[int], per_s: float) -> None:
        self._sender, self._kind, self._numbers = sender, kind, numbers
        self.callers = max(1, min(CALLERS, len(numbers) // 2))
        self._gap_s = self.callers / per_s if per_s else 0.0
        self.sent_ns = [0] * len(numbers)

    async def run(self) -> float:
        """Sends everything; the seconds without the first call of each caller, which opens connections and prepares statements."""
        if inspect.iscoroutinefunction(self._sender.one):
            await asyncio.gather(*(self._first(place) for place in range(self.callers)))
            begin = time.perf_counter()
            await asyncio.gather(*(self._rest(place) for place in range(self.callers)))
            return time.perf_counter() - begin
        return await asyncio.to_thread(self._in_threads)

    async def _first(self, place: int) -> None:
        self.sent_ns[place] = time.monotonic_ns()
        await self._sender.one(self._kind, self._numbers[place])

    async def _rest(self, place: int) -> None:
        due_ns, chance = time.monotonic_ns(), random.Random(place)
        for index in range(place + self.callers, len(self._numbers), self.callers):
            if self._gap_s:
                due_ns += self._pause_ns(chance)
                if (wait_ns := due_ns - time.monotonic_ns()) > 0:
                    await asyncio.sleep(wait_ns / 1e9)
                    due_ns = time.monotonic_ns()
            # A job that was due while the call before was under way has waited since then.
            self.sent_ns[index] = due_ns if self._gap_s else time.monotonic_ns()
            await self._sender.one(self._kind, self._numbers[index])

    def _in_threads(self) -> float:
        """The same for a sender that blocks; an error of any thread is raised."""
        ready, problems = threading.Barrier(self.callers + 1), list[Exception]()

        def call(place: int) -> None:
            try:
                self._first_blocking(place)
                ready.wait()
                self._rest_blocking(place)
            except Exception as problem:  # noqa: BLE001 - raised again in the thread that waits
                problems.append(problem)
                ready.abort()

        threads = [threading.Thread(target=call, args=(place,), daemon=True) for place in range(self.callers)]
        for thread in threads:
            thread.start()
        try:
            ready.wait()
        except threading.BrokenBarrierError:
            raise problems[0] from None
        begin = time.perf_counter()
        for thread in threads:
            thread.join()
        if problems:
            raise problems[0]
        return time.perf_counter() - begin

    def _first_blocking(self, place: int) -> None:
        self.sent_ns[place] = time.monotonic_ns()
        self._sender.one(self._kind, self._numbers[place])

    def _rest_blocking(self, place: int) -> None:
        due_ns, chance = time.monotonic_ns(), random.Random(place)
        for index in range(place + self.callers, len(self._numbers), self.callers):
            if self._gap_s:
                due_ns += self._pause_ns(chance)
                if (wait_ns := due_ns - time.monotonic_ns()) > 0:
                    time.sleep(wait_ns / 1e9)
                    due_ns = time.monotonic_ns()
            self.sent_ns[index] = due_ns if self._gap_s else time.monotonic_ns()
            self._sender.one(self._kind, self._numbers[index])

    def _pause_ns(self, chance: random.Random) -> int:
        return round(chance.expovariate(1 / self._gap_s) * 1e9)
