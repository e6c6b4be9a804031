"""The board: what one worker counts of its downstreams, writes as notes, and reads from them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from mulligan import Breaker, Downstream, RetryBudget
from mulligan.core.clock import ManualClock
from mulligan.core.contract import Store
from mulligan.core.limits import TOKEN
from mulligan.observe.bus import EventBus
from mulligan.policy.breaker import BreakerState, Slot, write_state
from mulligan.steering import Steering
from mulligan.worker import board as boards
from mulligan.worker.board import CALM_S, PRESSING_S
from tests.builders import all_events
from tests.faults import FaultyStore
from tests.worker.members import BREAKER, Member, counted, stored


async def test_calls_are_counted_in_memory_and_written_by_the_next_sync(store: Store, clock: ManualClock) -> None:
    """Nothing is read or written between two syncs; one write carries all of it, and nothing new is not written at all."""
    faulty = FaultyStore(store)
    one = Member(faulty, clock)
    one.ended(ok=7, bad=2)
    assert (faulty.calls, one.phase()) == (Counter(), "closed")
    await one.board.sync()
    assert counted(await stored(store)) == (7, 2)
    assert faulty.calls == {"notes": 1, "put_note": 1}
    await one.board.sync()
    assert faulty.calls == {"notes": 2, "put_note": 1}
    one.ended(ok=1)
    await one.board.sync()
    assert counted(await stored(store)) == (8, 2)


async def test_it_opens_probes_and_closes_with_an_event_each(store: Store, clock: ManualClock) -> None:
    """The whole way round: what claims may do in each phase, and what is told of it, here and in the store's log."""
    one = Member(store, clock)
    one.ended(bad=10)
    await one.board.sync()
    assert (one.phase(), one.refusal()) == ("open", "it depends on d, and that breaker is open: 10 of 10 calls failed within 60 s")
    assert [(bucket.rate_u, bucket.burst_u) for bucket in one.board.limits()] == [(0, 0)]
    clock.advance(30)
    await one.board.sync()
    assert (one.phase(), one.refusal()) == ("half_open", "")
    assert one.refusal(began_us=clock.now_us() - 1).endswith("this job is not one of its probes")
    assert [(bucket.rate_u, bucket.burst_u) for bucket in one.board.limits()] == [(TOKEN, TOKEN)]
    one.ended(ok=3)
    await one.board.sync()
    assert (one.phase(), one.refusal()) == ("closing", "")
    clock.advance(30)
    await one.board.sync()
    assert (one.phase(), one.board.limits()) == ("closed", ())
    assert one.kinds == ["BREAKER_OPENED", "BREAKER_HALF_OPEN", "BREAKER_CLOSING", "BREAKER_CLOSED"]
    assert [event.kind for event in await all_events(store)] == one.kinds
    assert {event.detail["downstream"] for event in one.told} == {"d"}
    assert {event.worker for event in one.told} == {"w1"}


async def test_a_turn_wakes_whoever_sleeps(store: Store, clock: ManualClock) -> None:
    """`on_turn` is called when other limits are in force after a sync, and not otherwise."""
    one = Member(store, clock)
    turns: list[str] = []
    one.board.on_turn = lambda: turns.append(one.phase())
    for calls, pause_s in (({"ok": 5}, 1), ({"bad": 10}, 15), ({}, 15), ({}, 1), ({"ok": 3}, 30), ({}, 1), ({}, 1)):
        one.ended(**calls)
        await one.board.sync()
        clock.advance(pause_s)
    assert turns == ["open", "half_open", "closing", "closed"]


async def test_a_retry_after_holds_without_a_breaker(store: Store, clock: ManualClock) -> None:
    """Where failures shall never open it, none is counted; the downstream's own word still holds its jobs."""
    one = Member(store, clock, "w1", Downstream("d", breaker=None))
    one.ended(bad=100)
    await one.board.sync()
    assert await store.notes("") == []
    one.ended(bad=1, retry_after_s=20)
    await one.board.sync()
    assert one.kinds == ["DOWNSTREAM_HELD"]
    assert one.refusal() == "it depends on d, and that one is held: it asked to be left alone for 20 s"
    clock.advance(20)
    assert (one.refusal(), one.board.limits()) == ("", ())


async def test_a_downstream_nobody_configured_has_the_default_breaker(store: Store, clock: ManualClock) -> None:
    """It is known from its first call on; and from a note, to a worker that has made none."""
    one, two = Member(store, clock, "w1"), Member(store, clock, "w2")
    one.ended(bad=10, on="new")
    await one.board.sync()
    await two.board.sync()
    assert (one.phase("new"), two.phase("new")) == ("open", "open")
    assert two.refusal(on="new") == one.refusal(on="new") != ""
    assert two.refusal(on="never heard of") == ""


async def test_more_downstreams_than_are_watched(
    store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Those beyond the bound are not watched, which is told once; the configured ones always are."""
    monkeypatch.setattr(boards, "WATCHED_MAX", 2)
    one = Member(store, clock)
    for name in ("a", "b", "c", "e"):
        one.ended(bad=10, on=name)
    one.ended(bad=10)
    await one.board.sync()
    assert {name: state.state for name, state in one.board.states().items()} == {"d": "open", "a": "open", "b": "open"}
    assert one.refusal(on="c") == ""
    assert caplog.text.count("breakers of further ones are not watched here") == 1
    assert "more than 2 downstreams" in caplog.text


@pytest.mark.parametrize("body", ["", "{", '"closed"', '{"state": "ajar"}', '{"calls": [[1]]}', "[" * 10_000, "\U0001f600"])
async def test_a_note_that_cannot_be_read(store: Store, clock: ManualClock, caplog: pytest.LogCaptureFixture, body: str) -> None:
    """It counts as a closed breaker, is told once, and is written over as soon as there is something to say."""
    await store.put_note("breaker:d", body, 0)
    one = Member(store, clock)
    await one.board.sync()
    await one.board.sync()
    assert caplog.text.count("the note breaker:d cannot be read") == 1
    assert (one.phase(), one.refusal()) == ("closed", "")
    one.ended(bad=10)
    await one.board.sync()
    assert (await stored(store)).state == "open"


async def test_a_note_of_no_downstream_is_left_alone(store: Store, clock: ManualClock) -> None:
    """A key that holds no name is nobody's breaker."""
    await store.put_note("breaker:no such name!", "{}", 0)
    await store.put_note("something else", "{}", 0)
    one = Member(store, clock)
    await one.board.sync()
    assert list(one.board.states()) == ["d"]


async def test_calls_of_too_many_claims_are_counted_together(store: Store, clock: ManualClock) -> None:
    """What waits for a sync is bounded, whatever the number of claims, and none of it is lost."""
    one = Member(store, clock, "w1", Downstream("d", breaker=Breaker(min_calls=10_000)))
    for number in range(5 * boards.CLAIM_TIMES_MAX):
        one.ended(ok=number % 2, bad=1 - number % 2, began_us=clock.now_us() + number)
    await one.board.sync()
    assert counted(await stored(store)) == (250, 250)


async def test_the_next_sync_comes_sooner_while_something_is_going_on(store: Store, clock: ManualClock) -> None:
    """A second while all is well, or it is open or tried and there is nothing to hear; a quarter of it while its load grows again."""
    one = Member(store, clock)
    pauses: list[tuple[str, float]] = []
    for calls in ({"ok": 5}, {"bad": 10}, {}, {}, {"ok": 3}, {}, {}):
        one.ended(**calls)
        await one.board.sync()
        pauses.append((one.phase(), one.board.pause_s()))
        clock.advance(15)
    calm = [("closed", CALM_S), *[("open", CALM_S)] * 2, ("half_open", CALM_S)]
    assert pauses == [*calm, *[("closing", PRESSING_S)] * 2, calm[0]]
    await Steering(store, EventBus()).open_breaker("d")
    await one.board.sync()
    assert (one.phase(), one.board.pause_s()) == ("open", CALM_S)


async def test_news_do_not_wait_for_the_next_sync(store: Store, clock: ManualClock) -> None:
    """What turns a breaker, or holds it, should be told at once; what is merely counted can wait, and what was told is no news."""
    one = Member(store, clock)
    news: list[bool] = []
    steps: list[dict[str, Any]] = [{}, {"ok": 50}, {"bad": 5}, {"bad": 100}, {"bad": 1, "retry_after_s": 50}]
    for calls in steps:
        one.ended(**calls)
        news.append(one.board.has_news())
        await one.board.sync()
        assert not one.board.has_news()
    assert news == [False, False, False, True, True]
    for seconds, is_over in ((29, False), (1, True), (15, False), (5, True)):  # it is tried after thirty, the hold ends after fifty
        clock.advance(seconds)
        assert one.board.has_news() == is_over
        await one.board.sync()
        assert not one.board.has_news()
    one.ended(ok=3)
    assert (one.phase(), one.board.has_news()) == ("half_open", True)


async def test_the_next_sync_comes_in_time_for_what_time_changes(store: Store, clock: ManualClock) -> None:
    """An open breaker is tried, and a hold ends, when it should, and not up to a second later."""
    one = Member(store, clock)
    one.ended(bad=10)
    one.ended(bad=1, retry_after_s=10.5)
    await one.board.sync()
    for seconds, pause_s in ((0, CALM_S), (10, 0.51), (1, CALM_S), (18.5, 0.51)):
        clock.advance(seconds)
        await one.board.sync()
        assert one.board.pause_s() == pytest.approx(pause_s)
    clock.advance(0.51)
    await one.board.sync()
    assert one.phase() == "half_open"


async def test_what_another_worker_left_open_is_no_trouble_without_a_breaker(store: Store, clock: ManualClock) -> None:
    """A worker that was told to have no breaker obeys none, and does not watch it in a hurry either."""
    one, two = Member(store, clock, "w1"), Member(store, clock, "w2", Downstream("d", breaker=None))
    one.ended(bad=10)
    await one.board.sync()
    await two.board.sync()
    assert (one.refusal() != "", two.refusal(), two.board.limits()) == (True, "", ())
    clock.advance(30)
    one.ended(ok=3)
    await one.board.sync()
    one.ended(ok=3)
    await one.board.sync()
    await two.board.sync()
    assert (one.board.pause_s(), two.board.pause_s()) == (PRESSING_S, CALM_S)


async def test_budgets_of_downstreams_are_limits_of_every_claim(store: Store, clock: ManualClock) -> None:
    """Whatever the state of the breaker is."""
    one = Member(store, clock, "w1", Downstream("d", breaker=BREAKER, budget=RetryBudget(per_s=2)), Downstream("e"))
    keys = ["budget:downstream:d"]
    assert [bucket.key for bucket in one.board.limits()] == keys
    assert {name: (bucket.key, budget.per_s) for name, (bucket, budget) in one.board.budgets().items()} == {"d": (keys[0], 2)}
    one.ended(bad=10)
    await one.board.sync()
    assert [bucket.key for bucket in one.board.limits()] == ["breaker:d", *keys]


async def test_closed_breakers_cost_a_claim_nothing(store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many downstreams are known, a claim asks only those that limit something."""
    one = Member(store, clock, "w1", *(Downstream(f"d{number}") for number in range(200)), Downstream("rated", budget=RetryBudget(per_s=1)))
    asked: list[str] = []
    plain = Downstream.limits
    monkeypatch.setattr(Downstream, "limits", lambda self, *args: (asked.append(self.name), plain(self, *args))[1])
    one.ended(bad=10, on="d7")
    await one.board.sync()
    asked.clear()
    limits = one.board.limits()
    assert sorted(bucket.key for bucket in limits) == ["breaker:d7", "budget:downstream:rated"]
    assert len(asked) <= 2


# -- Settings of queues --------------------------------------------------------------------------------------------------


async def test_changed_settings_are_told_once(store: Store, clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    """Each change of a queue's note is handed on once, its end as None; whoever cannot use one does not stop the others."""
    one = Member(store, clock)
    heard: list[tuple[str, str | None]] = []

    def hear(queue: str, text: str | None) -> None:
        heard.append((queue, text))
        if text == "bad":
            raise ValueError("no use")

    one.board.on_settings = hear
    await store.put_note("queue:a", "bad", 0)
    await store.put_note("queue:b", "{}", 0)
    one.ended(bad=10)
    await one.board.sync()
    await one.board.sync()
    await store.put_note("queue:b", "", 1)
    await one.board.sync()
    assert heard == [("a", "bad"), ("b", "{}"), ("b", "")]
    assert "the new settings of queue a could not be taken over" in caplog.text
    assert one.phase() == "open"


def test_a_state_is_small(clock: ManualClock) -> None:
    """A note stays short however long the history and however many have written it, since every worker reads it every second."""
    slots = tuple(Slot(clock.now_us() + number, 10**6, 10**6) for number in range(11))
    state = BreakerState(
        calls=slots, written_by=("12345678/1000000",) * boards.MARKS_MAX, reason="it was well for 30 s under a growing load"
    )
    assert len(write_state(state)) < 1_200
