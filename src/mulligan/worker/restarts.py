"""Restarts: how long a supervisor waits before it starts a child in the place of one that died."""

from __future__ import annotations

PAUSE_MIN_S, PAUSE_MAX_S = 0.5, 30.0
STEADY_S = 10.0


class Restarts:
    """Of one place. The first restart is at once; deaths in a row wait longer each time.

    A child that has finished a job, or lived for a while, has shown that it can work: whatever killed it, its place starts anew. So a job
    that kills its process costs the others one start of a process, not half a minute.
    """

    def __init__(self) -> None:
        self._in_a_row = 0

    def pause_s(self, lived_s: float, finished: int) -> float:
        """How long to wait after a death."""
        if finished or lived_s >= STEADY_S:
            self._in_a_row = 0
        self._in_a_row += 1
        return 0.0 if self._in_a_row == 1 else min(PAUSE_MAX_S, PAUSE_MIN_S * 2.0 ** min(self._in_a_row - 2, 20))
