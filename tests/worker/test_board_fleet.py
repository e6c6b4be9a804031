"""Boards of a fleet: they write the same notes, at the same time, over a store that may not answer."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from mulligan import Breaker, Downstream
from mulligan.core.clock import ManualClock
from mulligan.core.contract import Store
from mulligan.core.errors import StoreRejected, StoreUnavailable
from mulligan.observe.bus import EventBus
from mulligan.policy.breaker import closed_by_hand, opened_by_hand
from mulligan.steering import Steering
from mulligan.worker import board as boards
from mulligan.worker.board import PRESSING_S, change_by_hand
from tests.builders import all_events
from tests.faults import FaultyStore
from tests.worker.members import BREAKER, Member, SlowStore, counted, stored


async def test_nothing_is_counted_twice_or_lost(store: Store, clock: ManualClock) -> None:
    """Eight boards that write at the same time, again and again: every call is counted once."""
    fleet = [Member(store, clock, f"w{number}", Downstream("d", breaker=Breaker(min_calls=10_000))) for number in range(8)]
    for _ in range(5):
        for one in fleet:
            one.ended(ok=2, bad=1)
        await asyncio.gather(*(one.board.sync() for one in fleet))
    for _ in range(3):  # what the others were too quick for
        await asyncio.gather(*(one.board.sync() for one in fleet))
    assert counted(await stored(store)) == (80, 40)


@pytest.mark.parametrize("names", [("w1", "w2"), ("w1", "w1")], ids=["two workers", "two boards of one process"])
async def test_what_loses_a_race_is_added_to_what_the_winner_wrote(store: Store, clock: ManualClock, names: tuple[str, str]) -> None:
    """Six failures here and six there, read before either was written, open the breaker together; one of the two tells it."""
    slow = SlowStore(store)
    one, two = Member(slow, clock, names[0]), Member(store, clock, names[1])
    one.ended(bad=6)
    two.ended(bad=6)
    syncing = asyncio.create_task(one.board.sync())
    await slow.reached.wait()
    await two.board.sync()
    assert (counted(await stored(store)), two.phase()) == ((0, 6), "closed")
    slow.go_on.set()
    await syncing
    await two.board.sync()
    assert (one.phase(), two.phase()) == ("open", "open")
    assert (one.kinds, two.kinds) == (["BREAKER_OPENED"], [])
    assert one.told[0].detail["why"] == "12 of 12 calls failed within 60 s"


async def test_an_event_is_told_once_in_the_fleet(store: Store, clock: ManualClock) -> None:
    """All boards see the same failures and the same time at the same moment: one write makes each change, and its writer tells it."""
    fleet = [Member(store, clock, f"w{number}") for number in range(6)]
    for seconds, calls in ((0, {"bad": 20}), (30, {}), (1, {"ok": 1}), (30, {})):
        clock.advance(seconds)
        for one in fleet:
            one.ended(**calls)
        for _ in range(3):
            await asyncio.gather(*(one.board.sync() for one in fleet))
    told = Counter(kind for one in fleet for kind in one.kinds)
    assert told == dict.fromkeys(["BREAKER_OPENED", "BREAKER_HALF_OPEN", "BREAKER_CLOSING", "BREAKER_CLOSED"], 1)
    assert Counter(event.kind for event in await all_events(store)) == told


async def test_a_retry_after_from_one_worker_holds_the_others(store: Store, clock: ManualClock) -> None:
    """They hear of it with their next sync, and hold as long as it was asked for."""
    one, two = Member(store, clock, "w1"), Member(store, clock, "w2")
    one.ended(bad=1, retry_after_s=45)
    await one.board.sync()
    await two.board.sync()
    assert two.refusal() == "it depends on d, and that one is held: it asked to be left alone for 45 s"
    assert [(bucket.rate_u, bucket.burst_u) for bucket in two.board.limits()] == [(0, 0)]
    clock.advance(44)
    two.ended(bad=1, retry_after_s=0.5)  # a shorter one changes nothing
    await two.board.sync()
    assert two.refusal() != ""
    clock.advance(1)
    assert (one.refusal(), two.refusal()) == ("", "")
    assert (one.kinds, two.kinds) == (["DOWNSTREAM_HELD"], [])


async def test_a_retry_after_holds_its_own_worker_at_once(store: Store, clock: ManualClock) -> None:
    """Jobs that this worker has claimed already do not start, and it claims no more, before the fleet has heard of it."""
    one = Member(store, clock)
    one.ended(bad=1, retry_after_s=45)
    assert one.refusal() == "it depends on d, and that one is held: it asked to be left alone"
    assert [(bucket.rate_u, bucket.burst_u) for bucket in one.board.limits()] == [(0, 0)]
    clock.advance(45)
    assert (one.refusal(), one.board.limits()) == ("", ())


async def test_an_operator_wins(store: Store, clock: ManualClock) -> None:
    """What is opened by hand stays open however well calls go, and closing it forgets everything that was counted."""
    one, operator = Member(store, clock), Steering(store, EventBus())
    await operator.open_breaker("d", reason="they are moving", by="ann")
    for _ in range(5):
        one.ended(ok=50)
        await one.board.sync()
        assert one.refusal() == "it depends on d, and that breaker is open: they are moving"
        clock.advance(3_600)
    assert one.kinds == []
    began_us = clock.now_us()
    clock.advance(1)
    await operator.close_breaker("d", by="ann")
    one.ended(bad=50, began_us=began_us)  # under way while it was open: they say nothing about now
    await one.board.sync()
    assert (one.phase(), one.refusal()) == ("closed", "")
    one.ended(bad=10)
    await one.board.sync()
    assert one.phase() == "open"
    kinds = [(event.kind, event.detail["by"]) for event in await all_events(store)]
    assert kinds == [("BREAKER_OPENED", "ann"), ("BREAKER_CLOSED", "ann"), ("BREAKER_OPENED", "")]


async def test_an_operator_gets_through_a_busy_fleet(store: Store, clock: ManualClock) -> None:
    """A change by hand is repeated over whatever workers write in between."""
    one = Member(store, clock, "w1", Downstream("d", breaker=Breaker(min_calls=10_000)))

    class Busy(FaultyStore):
        async def put_note(self, *args: Any) -> Any:
            if self.calls["notes"] <= 5:
                one.ended(ok=1)
                await one.board.sync()
            return await store.put_note(*args)

    state = await change_by_hand(Busy(store), EventBus(), "d", lambda state, now_us: opened_by_hand(state, now_us, by="ann", reason=""))  # type: ignore[arg-type]
    assert (state.state, (await stored(store)).by) == ("open", "ann")


async def test_an_operator_who_cannot_get_through_is_told(store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was changed then, and the error says so."""
    monkeypatch.setattr(boards, "HAND_TRIES_MAX", 3)

    class Racing(FaultyStore):
        async def put_note(self, *args: Any) -> None:
            """Somebody else was quicker."""

    with pytest.raises(StoreUnavailable, match="try again"):
        await change_by_hand(Racing(store), EventBus(), "d", lambda state, now_us: closed_by_hand(state, now_us, by="", reason=""))  # type: ignore[arg-type]
    assert await store.notes("") == []


# -- Faults --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_write_whose_reply_was_lost_is_repeated(store: Store, clock: ManualClock, when: Any) -> None:
    """Whether it was made or not: the next sync makes sure, counts nothing twice, and tells the change once."""
    faulty = FaultyStore(store)
    one, two = Member(faulty, clock, "w1"), Member(store, clock, "w2")
    one.ended(bad=10)
    faulty.fail("put_note", when=when)
    with pytest.raises(StoreUnavailable):
        await one.board.sync()
    assert one.board.pause_s() == PRESSING_S
    one.ended(bad=4)
    await one.board.sync()
    await two.board.sync()
    assert (one.phase(), two.phase()) == ("open", "open")
    assert (one.kinds, two.kinds) == (["BREAKER_OPENED"], [])
    assert [event.kind for event in await all_events(store)] == ["BREAKER_OPENED"]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_lost_reply_counts_nothing_twice_though_others_wrote_since(store: Store, clock: ManualClock, when: Any) -> None:
    """Another worker has written over it before it could be repeated: what it carried is in there once, made or not."""
    faulty = FaultyStore(store)
    one, two = (
        Member(which, clock, name, Downstream("d", breaker=Breaker(min_calls=100))) for which, name in ((faulty, "w1"), (store, "w2"))
    )
    one.ended(ok=1, bad=3)
    faulty.fail("put_note", when=when)
    with pytest.raises(StoreUnavailable):
        await one.board.sync()
    for _ in range(5):
        two.ended(ok=1)
        await two.board.sync()
    await one.board.sync()
    assert counted(await stored(store)) == (6, 3)


async def test_a_change_whose_reply_was_lost_is_told_though_others_wrote_since(store: Store, clock: ManualClock) -> None:
    """The one whose write opened it tells so, even if it hears of that late."""
    faulty = FaultyStore(store)
    one, two = Member(faulty, clock, "w1"), Member(store, clock, "w2")
    one.ended(bad=10)
    faulty.fail("put_note", when="after")
    with pytest.raises(StoreUnavailable):
        await one.board.sync()
    two.ended(bad=1, retry_after_s=5)
    await two.board.sync()
    await one.board.sync()
    assert (one.kinds, two.kinds) == (["BREAKER_OPENED"], ["DOWNSTREAM_HELD"])


async def test_events_are_recorded_after_an_outage(store: Store, clock: ManualClock) -> None:
    """A change that was told here and not yet in the log of the store is written there by the next sync."""
    faulty = FaultyStore(store)
    one = Member(faulty, clock)
    one.ended(bad=10)
    faulty.fail("record_events")
    with pytest.raises(StoreUnavailable):
        await one.board.sync()
    assert (one.kinds, await all_events(store)) == (["BREAKER_OPENED"], [])
    await one.board.sync()
    await one.board.sync()
    assert [event.kind for event in await all_events(store)] == ["BREAKER_OPENED"]


@pytest.mark.parametrize("call", ["put_note", "record_events"])
async def test_what_the_store_refuses_does_not_stop_the_others(
    store: Store, clock: ManualClock, caplog: pytest.LogCaptureFixture, call: str
) -> None:
    """A write that will never succeed is dropped and told; the breakers after it are written all the same."""
    faulty = FaultyStore(store)
    one = Member(faulty, clock, "w1", Downstream("a", breaker=BREAKER), Downstream("d", breaker=BREAKER))
    one.ended(bad=10, on="a")
    one.ended(bad=10)
    faulty.fail(call, times=1, error=StoreRejected("injected: too long"))
    await one.board.sync()
    assert one.phase() == "open"
    assert "injected: too long" in caplog.text
    one.ended(bad=10, on="a")
    await one.board.sync()
    assert (await stored(store, "a")).state == "open"


async def test_two_syncs_at_once_tell_everything_once(store: Store, clock: ManualClock) -> None:
    """Claims by hand may be made at the same time, and each of them begins with a sync."""
    slow = SlowStore(store)
    one = Member(slow, clock)
    one.ended(bad=10)
    syncs = [asyncio.create_task(one.board.sync()) for _ in range(3)]
    await slow.reached.wait()
    one.ended(bad=1)
    slow.go_on.set()
    await asyncio.gather(*syncs)
    await one.board.sync()
    assert one.kinds == ["BREAKER_OPENED"]
    assert [event.kind for event in await all_events(store)] == ["BREAKER_OPENED"]


async def test_a_clock_set_back_does_not_keep_it_shut(store: Store, clock: ManualClock) -> None:
    """An open breaker lasts as long as it was meant to, by the clock as it is now, and a hold ends at once."""
    one = Member(store, clock)
    one.ended(bad=10)
    await one.board.sync()
    clock.advance(-86_400)
    await one.board.sync()
    assert one.phase() == "open"
    clock.advance(30)
    await one.board.sync()
    assert one.phase() == "half_open"
    one.ended(bad=1, retry_after_s=600)
    await one.board.sync()
    clock.advance(-86_400)
    assert "held" not in one.refusal()
