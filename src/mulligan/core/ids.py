"""Time-ordered identifiers (UUID version 7), made by the client so that a repeated call means the same thing."""

from __future__ import annotations

import os
import re
import struct
import threading
from collections.abc import Iterator

_PATTERN = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TAILS = 256  # drawn at once, because each draw is a call of the operating system


class _Maker:
    """Makes the ids of one process."""

    def __init__(self) -> None:
        self._last_tick = 0
        self.begin()

    def begin(self) -> None:
        """In a new process: a forked child must not repeat its parent's chance, nor wait for a lock that the parent held."""
        self._lock = threading.Lock()
        self._tails: Iterator[int] = iter(())

    def make(self, now_us: int) -> str:
        tick = (now_us // 1_000 << 12) | (now_us % 1_000 * 4096 // 1_000)
        with self._lock:
            if tick <= self._last_tick:
                tick = self._last_tick + 1
            self._last_tick = tick
            tail = next(self._tails, None)
            if tail is None:
                self._tails = iter(struct.unpack(f">{_TAILS}Q", os.urandom(8 * _TAILS)))
                tail = next(self._tails)
        text = f"{tick >> 12:012x}7{tick & 0xFFF:03x}{tail & 0x3FFF_FFFF_FFFF_FFFF | 0x8000_0000_0000_0000:016x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


_maker = _Maker()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_maker.begin)


def new_id(now_us: int) -> str:
    """A UUIDv7 whose order follows time, and the order of calls within one process.

    48 bits of milliseconds and 12 bits of their fraction form one rising counter; 62 random bits keep processes apart.
    """
    return _maker.make(now_us)


def is_id(text: object) -> bool:
    """Whether the text has the form of an id of ours."""
    return isinstance(text, str) and _PATTERN.fullmatch(text) is not None
