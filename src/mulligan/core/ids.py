"""Time-ordered identifiers (UUID version 7), made by the client so that a repeated call means the same thing."""

from __future__ import annotations

import os
import re
import threading

_PATTERN = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_lock = threading.Lock()
_last_tick = 0


def new_id(now_us: int) -> str:
    """A UUIDv7 whose order follows time, and the order of calls within one process.

    48 bits of milliseconds and 12 bits of their fraction form one rising counter; 62 random bits keep processes apart.
    """
    global _last_tick
    tick = (now_us // 1_000 << 12) | (now_us % 1_000 * 4096 // 1_000)
    with _lock:
        if tick <= _last_tick:
            tick = _last_tick + 1
        _last_tick = tick
    tail = int.from_bytes(os.urandom(8), "big") & 0x3FFF_FFFF_FFFF_FFFF
    text = f"{tick >> 12:012x}7{tick & 0xFFF:03x}{tail | 0x8000_0000_0000_0000:016x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def is_id(text: object) -> bool:
    """Whether the text has the form of an id of ours."""
    return isinstance(text, str) and _PATTERN.fullmatch(text) is not None
