"""A sampler: every so often it looks where each thread is, and books the processor time the thread has used since the last look there.

Looks come by a timer of the system (SIGALRM), whose handler Python runs in the main thread between two of its steps. So a look may come
late, after a long call of C code; but what it books is time that was used, read from the clock of each thread, and such a call still
belongs to the function that made it. A thread that waits when it is looked at was busy until a moment before, nobody knows with what:
that time is booked as unplaced, with what the waiting itself costs the system. The looks are frequent, so that there is little of it.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections import Counter
from types import FrameType, TracebackType

from benchmarks.profile.stages import Spot, calls_of, spot_of

EVERY_S = 0.0002


class Sampler:
    """`with Sampler() as sampler:` in the main thread; then `seconds` has the processor time of each spot."""

    def __init__(self, every_s: float = EVERY_S) -> None:
        self._every_s = every_s
        self._clocks: dict[int, int] = {}  # of each thread
        self._used: dict[int, float] = {}  # what each clock showed at the last look
        self.seconds: Counter[Spot] = Counter()
        self.looks = 0
        self._is_on = False

    def __enter__(self) -> Sampler:
        self._note_threads()
        self._is_on = True
        self._before = signal.signal(signal.SIGALRM, self._look)
        signal.setitimer(signal.ITIMER_REAL, self._every_s)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._is_on = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)

    def _look(self, _: int, frame: FrameType | None) -> None:
        self.looks += 1
        main = threading.main_thread().ident
        for ident, stack in sys._current_frames().items():  # noqa: SLF001 - the documented way to see other threads
            used_s = self._used_by(ident)
            if used_s > 0:
                self.seconds[spot_of(calls_of(frame if ident == main else stack))] += used_s
        if main is not None and main in self._clocks:
            self._used[main] = time.clock_gettime(self._clocks[main])  # this look is nobody's work
        if self._is_on:
            signal.setitimer(signal.ITIMER_REAL, self._every_s)  # once each time, so that no look comes in the middle of another

    def _used_by(self, ident: int) -> float:
        if ident not in self._clocks:
            self._note_threads()
        clock = self._clocks.get(ident)
        if clock is None:
            return 0.0
        try:
            now_s = time.clock_gettime(clock)
        except OSError:  # it has ended
            self._clocks.pop(ident)
            return 0.0
        used_s, self._used[ident] = now_s - self._used.get(ident, now_s), now_s
        return used_s

    def _note_threads(self) -> None:
        for thread in threading.enumerate():
            if thread.ident is not None and thread.ident not in self._clocks and thread.is_alive():
                self._clocks[thread.ident] = time.pthread_getcpuclockid(thread.ident)
