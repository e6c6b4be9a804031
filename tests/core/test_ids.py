from __future__ import annotations

import os
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from mulligan.core import ids
from mulligan.core.clock import TIME_MAX_US, SystemClock
from mulligan.core.ids import is_id, new_id


def test_an_id_is_a_uuid_of_version_7() -> None:
    """Other tools can read it as a UUID, with our version and variant, whatever chance drew."""
    for text in [new_id(SystemClock().now_us()) for _ in range(500)]:
        parsed = uuid.UUID(text)
        assert str(parsed) == text
        assert parsed.version == 7
        assert parsed.variant == uuid.RFC_4122
        assert is_id(text)


def test_ids_rise_within_a_process() -> None:
    """Ids made one after the other sort in that order, also in the same microsecond and when the clock is set back."""
    now_us = SystemClock().now_us()
    made = [new_id(now_us + offset) for offset in (0, 0, 0, 1, 5_000, -1_000_000, 0, -(10**9))]
    made += [new_id(now_us) for _ in range(20_000)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)


def test_ids_are_unique_and_rise_in_every_thread() -> None:
    """Threads that make ids at once never get the same one, and each sees its own rise."""
    now_us = SystemClock().now_us()
    with ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(lambda _: [new_id(now_us) for _ in range(5_000)], range(8)))
    assert all(part == sorted(part) for part in parts)
    assert len({one for part in parts for one in part}) == 40_000


def test_ids_of_different_processes_differ_by_chance() -> None:
    """The tail is random: equal times in two processes do not make equal ids."""
    tails = {new_id(0)[-16:] for _ in range(1_000)}
    assert len(tails) == 1_000


GOOD_ID = "018bcfe5-687b-774b-b94d-b19737d567a6"  # fixed, so that every test process collects the same names


@pytest.mark.parametrize(
    "text", ["", "x", "0" * 32, GOOD_ID.upper() + "0", GOOD_ID[:-1], f" {GOOD_ID}", f"{GOOD_ID}\n", None, 7, b"x", uuid.UUID(int=0)]
)
def test_what_is_no_id_is_told(text: object) -> None:
    """Only the canonical lower-case text is an id."""
    assert not is_id(text)


@pytest.mark.parametrize("now_us", [0, 1_700_000_000_123_456, TIME_MAX_US - 1])
def test_ids_carry_their_time(monkeypatch: pytest.MonkeyPatch, now_us: int) -> None:
    """The first 48 bits are milliseconds, from the first to the last allowed time; the next twelve are their fraction."""
    monkeypatch.setattr(ids._maker, "_last_tick", -1)  # As in a new process; and the ids of this one do not follow 2199 afterwards.
    text = new_id(now_us)
    assert is_id(text)
    assert uuid.UUID(text).int >> 80 == now_us // 1_000
    assert uuid.UUID(text).int >> 64 & 0xFFF == now_us % 1_000 * 4_096 // 1_000


def test_a_forked_child_does_not_repeat_its_parents_ids() -> None:
    """Chance is drawn ahead; a child that inherited the same draw would make ids that its parent makes too."""
    new_id(0)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, new_id(0).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 36).decode()[-12:] != new_id(0)[-12:]
    os.close(reading)
    os.close(writing)
