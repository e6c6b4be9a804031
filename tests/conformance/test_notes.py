"""Notes: small texts that all processes share, written only over the version that was read."""

from __future__ import annotations

import asyncio

from mulligan.core.clock import ManualClock
from mulligan.core.contract import Note, Store


async def test_a_note_is_written_and_read(store: Store, clock: ManualClock) -> None:
    """The first version is 1, and the store's clock says when it was written."""
    note = await store.put_note("breaker:stripe", '{"état": "ouvert"}', 0)
    assert note == Note(key="breaker:stripe", body='{"état": "ouvert"}', version=1, updated_at_us=clock.now_us())
    assert await store.notes("") == [note]


async def test_only_the_version_that_was_read_is_written_over(store: Store, clock: ManualClock) -> None:
    """Of two writers that read the same version, the second one is refused and changes nothing."""
    assert await store.put_note("k", "one", 0) is not None
    clock.advance(1)
    second = await store.put_note("k", "two", 1)
    assert second is not None
    assert (second.version, second.updated_at_us) == (2, clock.now_us())
    assert await store.put_note("k", "three", 1) is None
    assert await store.put_note("k", "three", 0) is None
    assert await store.put_note("k", "three", 5) is None
    assert await store.notes("k") == [second]


async def test_a_repeat_answers_the_same(store: Store, clock: ManualClock) -> None:
    """After a lost reply the same write finds itself done, also when it was the first."""
    first = await store.put_note("k", "one", 0)
    clock.advance(1)
    assert await store.put_note("k", "one", 0) == first
    second = await store.put_note("k", "two", 1)
    clock.advance(1)
    assert await store.put_note("k", "two", 1) == second
    assert [note.version for note in await store.notes("k")] == [2]


async def test_a_note_that_is_not_there_has_version_zero(store: Store) -> None:
    """Nothing else can be written over."""
    assert await store.put_note("k", "body", 1) is None
    assert await store.notes("") == []


async def test_notes_are_found_by_prefix_in_order(store: Store) -> None:
    """The prefix is taken literally, and keys come in the order of their bytes."""
    for key in ("queue:b", "queue:a", "queue:", "queue_a", "breaker:x", "queue%a", "qu.*", "queue:é", "queue:Z"):
        await store.put_note(key, key, 0)
    assert [note.key for note in await store.notes("queue:")] == ["queue:", "queue:Z", "queue:a", "queue:b", "queue:é"]
    assert [note.key for note in await store.notes("queue_")] == ["queue_a"]
    assert [note.key for note in await store.notes("queue%")] == ["queue%a"]
    assert [note.key for note in await store.notes("qu.")] == ["qu.*"]
    assert len(await store.notes("")) == 9


async def test_of_many_writers_one_wins(store: Store) -> None:
    """All read version 0; one write is made."""
    answers = await asyncio.gather(*(store.put_note("k", f"writer {number}", 0) for number in range(10)))
    winners = [note for note in answers if note is not None]
    assert len(winners) == 1
    assert await store.notes("k") == winners
