"""Time-ordered identifiers (UUID version 7), made by the client so that a repeated call means the same thing."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator

_PATTERN = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_VARIANT = bytes(0x80 | byte & 0x3F for byte in range(256))  # a random byte with its upper two bits set to that of our ids
_TAILS = 256  # drawn at once, because each draw is a call of the operating system


class _Maker:
    """Makes the ids of one process."""

    def __init__(self) -> None:
        self._last_tick = 0
        self.begin()

    def begin(self) -> None:
        """In a new process: a forked child must not repeat its parent's chance, nor wait for a lock that the parent held."""
        self._lock = threading.Lock()
        self._tails: Iterator[str] = iter(())
        self._head_ms, self._head = -1, ""  # ids made one after the other mostly begin with the same millisecond

    def make(self, now_us: int) -> str:
        tick = (now_us // 1_000 << 12) | (now_us % 1_000 * 4096 // 1_000)
        with self._lock:
            if tick <= self._last_tick:
                tick = self._last_tick + 1
            self._last_tick = tick
            tail = next(self._tails, None)
            if tail is None:
                self._tails = iter(_drawn())
                tail = next(self._tails)
            if tick >> 12 != self._head_ms:
                self._head_ms = tick >> 12
                text = f"{self._head_ms:012x}"
                self._head = f"{text[:8]}-{text[8:]}-7"
            head = self._head
        return f"{head}{tick & 0xFFF:03x}-{tail}"


def _drawn() -> list[str]:
    """The last parts of ids, by chance but for the two bits of the variant."""
    chance = bytearray(os.urandom(8 * _TAILS))
    chance[0 : 2 * _TAILS : 2] = chance[0 : 2 * _TAILS : 2].translate(_VARIANT)
    return list(map("-".join, zip(chance[: 2 * _TAILS].hex("-", 2).split("-"), chance[2 * _TAILS :].hex("-", 6).split("-"), strict=True)))


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
