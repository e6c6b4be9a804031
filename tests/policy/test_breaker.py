from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mulligan.core.clock import SECOND_US
from mulligan.core.errors import BadSetting
from mulligan.core.groups import DOWNSTREAM, group_of
from mulligan.core.limits import TOKEN, Bucket
from mulligan.policy.breaker import (
    Breaker,
    BreakerState,
    Calls,
    Slot,
    Turn,
    closed_by_hand,
    held,
    is_held,
    limits,
    opened_by_hand,
    passed,
    read_state,
    refusal,
    reported,
    wakes_at,
    write_state,
)

T0 = 1_700_000_000 * SECOND_US
BREAKER = Breaker()


def at(seconds: float) -> int:
    """So many seconds after the beginning."""
    return T0 + round(seconds * SECOND_US)


def after(state: BreakerState, seconds: float, ok: int = 0, bad: int = 0, *, began: float | None = None, by: Breaker = BREAKER) -> Any:
    """The state and its turns when calls have ended that were claimed just now, unless told otherwise."""
    return reported(state, by, Calls(ok=ok, bad=bad, began_us=at(seconds if began is None else began)), at(seconds))


OPEN, _ = after(BreakerState(), 0, bad=10)
HALF_OPEN, _ = passed(OPEN, BREAKER, at(30))
CLOSING, _ = after(HALF_OPEN, 31, ok=3)


# -- Settings ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"failure_rate": 0}, "failure_rate must be a number from 0.001 to 1, not 0"),
        ({"failure_rate": 1.01}, "failure_rate must be a number from 0.001 to 1, not 1.01"),
        ({"failure_rate": math.nan}, "failure_rate must be a number from 0.001 to 1, not nan"),
        ({"min_calls": 0}, "min_calls must be a whole number from 1 to 1000000000, not 0"),
        ({"min_calls": True}, "min_calls must be a whole number from 1 to 1000000000, not True"),
        ({"failures": 0}, "failures must be a whole number from 1 to 1000000000, not 0"),
        ({"window": 0.5}, "window must be a number of seconds from 1 to 86400, not 0.5"),
        ({"window": 86_401}, "window must be a number of seconds from 1 to 86400, not 86401"),
        ({"open_for": 0}, "open_for must be a number of seconds from 0.1 to 86400, not 0"),
        ({"open_max": 29}, "open_max must be a number of seconds from 30 to 86400, not 29"),
        ({"open_max": 86_401}, "open_max must be a number of seconds from 30 to 86400, not 86401"),
        ({"probes": 0}, "probes must be a whole number from 1 to 1000000000, not 0"),
        ({"probe_every": 0}, "probe_every must be a number of seconds from 0.001 to 3600, not 0"),
        ({"probe_every": "1"}, "probe_every must be a number of seconds from 0.001 to 3600, not '1'"),
        ({"ramp": -1}, "ramp must be a number of seconds from 0 to 86400, not -1"),
        ({"ramp": None}, "ramp must be a number of seconds from 0 to 86400, not None"),
    ],
)
def test_bad_settings_are_refused(fields: dict[str, Any], message: str) -> None:
    """Each setting names its bounds."""
    with pytest.raises(BadSetting) as refused:
        Breaker(**fields)
    assert str(refused.value) == f"breaker: {message}"


def test_settings_at_their_bounds() -> None:
    """The bounds themselves are allowed, and the defaults are those of the docs."""
    Breaker(failure_rate=0.001, min_calls=1, failures=1, window=1, open_for=0.1, open_max=0.1, probes=1, probe_every=0.001, ramp=0)
    Breaker(failure_rate=1, window=86_400, open_for=86_400, open_max=86_400, probe_every=3_600, ramp=86_400)
    assert Breaker(failures=None) == Breaker(
        failure_rate=0.5, min_calls=10, window=60, open_for=30, open_max=600, probes=3, probe_every=1, ramp=30
    )


# -- Opening -------------------------------------------------------------------------------------------------------------


def test_it_opens_when_a_share_of_enough_calls_fails() -> None:
    """Nine calls say nothing. With the tenth, half of them failed, and that is the limit."""
    state, turns = after(BreakerState(), 0, ok=5, bad=4)
    assert (state.state, turns) == ("closed", [])
    state, turns = after(state, 1, bad=1)
    assert turns == [Turn(kind="BREAKER_OPENED", why="5 of 10 calls failed within 60 s", until_us=at(31))]
    assert state == BreakerState(
        state="open", since_us=at(1), until_us=at(31), opened=1, reason="5 of 10 calls failed within 60 s"
    )  # and what was counted is forgotten
    assert after(BreakerState(), 0, ok=6, bad=5)[0].state == "closed"
    assert after(BreakerState(), 0, ok=5, bad=6)[0].state == "open"


def test_a_share_is_compared_exactly() -> None:
    """7 of 100 are 0.07, also where floating point would see a little less."""
    assert after(BreakerState(), 0, ok=93, bad=7, by=Breaker(failure_rate=0.07))[0].state == "open"
    assert after(BreakerState(), 0, ok=94, bad=7, by=Breaker(failure_rate=0.07))[0].state == "closed"


def test_it_opens_after_a_number_of_failures() -> None:
    """Whatever their share, where that is set."""
    breaker = Breaker(failures=3)
    state, _ = after(BreakerState(), 0, ok=1_000, bad=2, by=breaker)
    assert state.state == "closed"
    state, turns = after(state, 1, bad=1, by=breaker)
    assert (state.state, turns[0].why) == ("open", "3 calls failed within 60 s")
    assert after(BreakerState(), 0, ok=1_000, bad=3)[0].state == "closed"
    assert after(BreakerState(), 0, bad=10, by=Breaker(failures=20))[0].state == "open"  # the share counts as well


def test_a_good_call_opens_nothing() -> None:
    """Even if it is the one that makes the calls enough."""
    state, _ = after(BreakerState(), 0, bad=9)
    state, turns = after(state, 1, ok=1)
    assert (state.state, turns) == ("closed", [])
    assert after(state, 2, bad=1)[0].state == "open"


def test_calls_leave_the_window() -> None:
    """Failures of a minute ago are not counted with those of now; parts of the window leave it one by one."""
    state, _ = after(BreakerState(), 0, bad=5)
    state, _ = after(state, 3, bad=1)
    state, _ = after(state, 30, bad=3)
    assert len(state.calls) == 2  # 0 and 3 share a slot of six seconds, or 3 and 30 would be another pair
    assert sum(slot.bad for slot in state.calls) == 9
    gone, turns = after(state, 65, bad=3)
    assert (gone.state, turns, sum(slot.bad for slot in gone.calls)) == ("closed", [], 6)
    assert after(state, 50, bad=1)[0].state == "open"


def test_the_window_is_kept_in_few_slots() -> None:
    """A call a second for ten minutes: never more than eleven slots, and exactly what ended lately."""
    state = BreakerState()
    for second in range(600):
        state, _ = after(state, second, ok=1)
        assert len(state.calls) <= 11
        assert min(60, second + 1) - 6 <= sum(slot.ok for slot in state.calls) <= 60
        assert [slot.start_us for slot in state.calls] == sorted(slot.start_us for slot in state.calls)
    assert state.calls[-1] == Slot(state.calls[-1].start_us, state.calls[-1].ok, 0)
    assert state.calls[-1].start_us % (6 * SECOND_US) == 0


def test_nothing_is_said_by_no_calls() -> None:
    """An empty report is only the passing of time."""
    state, _ = after(BreakerState(), 0, bad=9)
    assert after(state, 1) == (state, [])
    assert after(OPEN, 30)[0].state == "half_open"


# -- Open, half open, closing -----------------------------------------------------------------------------------------------


def test_while_it_is_open_nothing_counts() -> None:
    """Calls under way end one after the other; that they fail is known."""
    assert after(OPEN, 10, ok=100, bad=100) == (OPEN, [])
    assert passed(OPEN, BREAKER, at(30) - 1) == (OPEN, [])


def test_it_goes_half_open_in_time() -> None:
    """When its time is over, and with a word on what happens now."""
    state, turns = passed(OPEN, BREAKER, at(30))
    why = "its time is over; one call every 1 s tries whether it is well again"
    assert turns == [Turn(kind="BREAKER_HALF_OPEN", why=why)]
    assert state == BreakerState(state="half_open", since_us=at(30), counts_from_us=at(30), opened=1, reason=why)
    assert passed(state, BREAKER, at(10_000)) == (state, [])


def test_a_bad_probe_opens_it_for_twice_as_long() -> None:
    """30 s, 60, 120 ... up to ten minutes, and no further."""
    state, now = OPEN, 0.0
    lengths = []
    for _ in range(60):
        lengths.append((state.until_us - state.since_us) / SECOND_US)
        now += lengths[-1]
        state, turns = after(state, now, ok=5, bad=1)
        assert [turn.kind for turn in turns] == ["BREAKER_HALF_OPEN", "BREAKER_OPENED"]
        assert turns[1].why == "a probe failed"
    assert lengths[:7] == [30, 60, 120, 240, 480, 600, 600]
    assert lengths[-1] == 600
    assert replace(state, opened=100_000).state == "open"
    huge, _ = after(replace(HALF_OPEN, opened=100_000), 31, bad=1)
    assert huge.until_us == at(631)


def test_old_calls_are_not_probes() -> None:
    """What was claimed before it went half open tells of the time before, in this phase and in those that follow."""
    assert after(HALF_OPEN, 31, ok=100, began=29.999) == (HALF_OPEN, [])
    assert after(HALF_OPEN, 31, bad=100, began=29.999) == (HALF_OPEN, [])
    assert after(HALF_OPEN, 31, bad=1, began=30)[0].state == "open"
    assert after(CLOSING, 32, bad=100, began=29.999) == (CLOSING, [])
    closed, _ = passed(CLOSING, BREAKER, at(61))
    assert after(closed, 900, bad=100, began=29.999) == (closed, [])
    assert after(closed, 900, bad=100, began=31)[0].state == "open"


def test_good_probes_begin_to_close_it() -> None:
    """Three of them, in one report or in several."""
    state, turns = after(HALF_OPEN, 31, ok=2)
    assert (state.state, state.good_probes, turns) == ("half_open", 2, [])
    state, turns = after(state, 32, ok=1)
    assert turns == [Turn(kind="BREAKER_CLOSING", why="3 probes in a row succeeded", until_us=at(62))]
    assert (state.state, state.since_us, state.opened, state.reason) == ("closing", at(32), 1, "3 probes in a row succeeded")
    assert after(HALF_OPEN, 31, ok=3)[0].state == "closing"
    assert after(HALF_OPEN, 31, ok=3, bad=1)[0].state == "open"


def test_it_closes_at_the_end_of_the_ramp() -> None:
    """Then it has never been open, as far as the next opening is concerned."""
    assert passed(CLOSING, BREAKER, at(61) - 1) == (CLOSING, [])
    state, turns = passed(CLOSING, BREAKER, at(61))
    why = "it was well for 30 s under a growing load"
    assert turns == [Turn(kind="BREAKER_CLOSED", why=why)]
    assert (state.state, state.since_us, state.opened, state.good_probes, state.reason) == ("closed", at(61), 0, 0, why)
    again, _ = after(state, 62, bad=10)
    assert (again.opened, again.until_us) == (1, at(92))


def test_too_many_failures_while_closing_open_it_again() -> None:
    """By the rule of every day: one failure among many calls is no reason, a share of them is; and twice as long."""
    state, turns = after(CLOSING, 32, ok=1, bad=3)
    assert (state.state, turns) == ("closing", [])
    state, turns = after(state, 33, bad=3)
    assert [turn.why for turn in turns] == ["6 of 10 calls failed within 60 s"]  # the three good probes are among the ten
    assert (state.state, state.opened, state.until_us, state.good_probes) == ("open", 2, at(93), 0)


def test_without_a_ramp_it_closes_at_once() -> None:
    """Both changes are told."""
    state, turns = after(HALF_OPEN, 31, ok=3, by=Breaker(ramp=0))
    assert (state.state, state.opened) == ("closed", 0)
    assert [turn.kind for turn in turns] == ["BREAKER_CLOSING", "BREAKER_CLOSED"]
    assert limits("x", replace(CLOSING, since_us=at(31)), Breaker(ramp=0), at(31)) == ()


# -- Retry-After ------------------------------------------------------------------------------------------------------------


def test_one_retry_after_holds_everybody() -> None:
    """Until the latest time anybody was told, whatever the state; it is not a failure."""
    state, turns = reported(BreakerState(), BREAKER, Calls(retry_after_us=20 * SECOND_US), T0)
    why = "it asked to be left alone for 20 s"
    assert turns == [Turn(kind="DOWNSTREAM_HELD", why=why, until_us=at(20))]
    assert state == BreakerState(held_until_us=at(20), held_why=why)
    assert [is_held(state, at(second)) for second in (0, 19.999, 20)] == [True, True, False]
    assert held(state, 5 * SECOND_US, at(1)) == (state, [])
    opened, turns = reported(OPEN, BREAKER, Calls(bad=1, retry_after_us=20 * SECOND_US), at(1))
    assert (opened.state, opened.until_us, opened.held_until_us, len(turns)) == ("open", at(30), at(21), 1)


def test_a_longer_hold_is_told_when_it_is_much_longer() -> None:
    """A hundred calls with the same answer are one event, but a minute that becomes an hour is another."""
    state, _ = held(BreakerState(), 20 * SECOND_US, T0)
    longer, turns = held(state, 20 * SECOND_US, at(10) - 1)
    assert (longer.held_until_us, turns) == (at(30) - 1, [])
    longer, turns = held(state, 20 * SECOND_US, at(10))
    assert (longer.held_until_us, len(turns)) == (at(30), 1)
    again, turns = held(state, 20 * SECOND_US, at(20))
    assert (again.held_until_us, len(turns)) == (at(40), 1)


@pytest.mark.parametrize("wait_us", [None, 0, -5])
def test_no_wait_holds_nobody(wait_us: int | None) -> None:
    """Nothing, or a time in the past."""
    assert held(BreakerState(), wait_us, T0) == (BreakerState(), [])


def test_a_hold_has_a_bound() -> None:
    """An hour. One that would last much longer was given before a clock went back."""
    state, _ = held(BreakerState(), 7_200 * SECOND_US, T0)
    assert state.held_until_us == at(3_600)
    assert is_held(state, at(-60))  # another worker's clock may be a little behind
    assert not is_held(state, at(-61))
    assert held(state, SECOND_US, at(-5_000))[0].held_until_us == at(-4_999)


def test_a_hold_while_closing_begins_the_ramp_again() -> None:
    """Otherwise it would close without a call having been made."""
    state, _ = held(CLOSING, 60 * SECOND_US, at(40))
    assert passed(state, BREAKER, at(99)) == (state, [])
    assert limits("x", state, BREAKER, at(100))[0].rate_u == TOKEN
    assert passed(state, BREAKER, at(130) - 1) == (state, [])
    assert passed(state, BREAKER, at(130))[0].state == "closed"
    earlier = replace(CLOSING, held_until_us=at(20))
    assert passed(earlier, BREAKER, at(61))[0].state == "closed"


# -- Operators --------------------------------------------------------------------------------------------------------------


def test_an_operator_opens_it_for_good() -> None:
    """No time and no call changes that."""
    state, turns = opened_by_hand(BreakerState(calls=(Slot(T0, 1, 2),)), at(5), by="ann", reason="migration")
    assert turns == [Turn(kind="BREAKER_OPENED", why="migration", by="ann")]
    assert state == BreakerState(state="open", since_us=at(5), manual=True, by="ann", reason="migration")
    assert passed(state, BREAKER, at(1_000_000)) == (state, [])
    assert after(state, 1_000_000, ok=50) == (state, [])
    assert opened_by_hand(state, at(9), by="ann", reason="migration") == (state, [])
    other, turns = opened_by_hand(state, at(9), by="bob", reason="")
    assert (other.since_us, other.by, turns) == (at(5), "bob", [Turn(kind="BREAKER_OPENED", why="an operator opened it", by="bob")])


def test_an_operator_takes_over_an_open_breaker() -> None:
    """It has been open all along, and will not go half open."""
    state, turns = opened_by_hand(OPEN, at(5), by="ann", reason=OPEN.reason)
    assert (state.since_us, state.until_us, state.manual, len(turns)) == (T0, 0, True, 1)
    assert passed(state, BREAKER, at(31)) == (state, [])


@pytest.mark.parametrize("state", [OPEN, HALF_OPEN, CLOSING, replace(OPEN, manual=True), BreakerState(held_until_us=at(60))])
def test_an_operator_closes_it_at_once(state: BreakerState) -> None:
    """Everything is forgotten, and calls under way do not count."""
    closed, turns = closed_by_hand(state, at(40), by="ann", reason="they fixed it")
    assert closed == BreakerState(since_us=at(40), counts_from_us=at(40), by="ann", reason="they fixed it")
    assert turns == [Turn(kind="BREAKER_CLOSED", why="they fixed it", by="ann")]
    assert after(closed, 41, bad=100, began=39)[0] == closed
    assert after(closed, 41, bad=100, began=40)[0].state == "open"


def test_closing_a_closed_one_is_no_change() -> None:
    """It only forgets."""
    assert closed_by_hand(BreakerState(), T0, by="ann", reason="")[1] == []
    assert closed_by_hand(OPEN, T0, by="", reason="")[1][0].why == "an operator closed it"


# -- What it allows -----------------------------------------------------------------------------------------------------------


def shut(name: str) -> Bucket:
    return Bucket(key=f"breaker:{name}", rate_u=0, burst_u=0, part=DOWNSTREAM, value=name)


def test_limits_of_each_phase() -> None:
    """Closed: none. Open or held: nothing. Half open: one token, and one each second; for the jobs of this downstream only."""
    assert limits("stripe", BreakerState(), BREAKER, T0) == ()
    assert limits("stripe", OPEN, BREAKER, at(1)) == (shut("stripe"),)
    assert limits("stripe", OPEN, BREAKER, at(99)) == (shut("stripe"),)  # half open begins in the store, for all at once
    for state in (BreakerState(), HALF_OPEN, CLOSING):
        assert limits("stripe", replace(state, held_until_us=at(60)), BREAKER, at(35)) == (shut("stripe"),)
    [probing] = limits("stripe", HALF_OPEN, Breaker(probe_every=4), at(31))
    assert probing == Bucket(key=f"breaker:stripe:{at(30)}", rate_u=TOKEN // 4, burst_u=TOKEN, part=DOWNSTREAM, value="stripe")
    assert probing.key_for(group_of("tenant", "stripe", None, None)) == probing.key
    assert probing.key_for(group_of("tenant", "mailer", None, None)) is None


@pytest.mark.parametrize(("elapsed", "per_s", "burst"), [(-5, 1, 1), (0, 1, 1), (3, 2, 1), (6, 4, 1), (15, 32, 8), (27, 512, 128)])
def test_the_rate_doubles_while_closing(elapsed: float, per_s: float, burst: float) -> None:
    """Ten times over the ramp, from the rate of the probes."""
    [bucket] = limits("x", CLOSING, BREAKER, at(31 + elapsed))
    assert (bucket.key, bucket.rate_u, bucket.burst_u) == (f"breaker:x:{at(31)}", per_s * TOKEN, burst * TOKEN)


def test_the_end_of_the_ramp_has_no_limit() -> None:
    """Before anybody has written that it is closed. And a rate is never more than a store can count."""
    assert limits("x", CLOSING, BREAKER, at(61)) == ()
    assert len(limits("x", CLOSING, BREAKER, at(61) - 1)) == 1
    [bucket] = limits("x", CLOSING, Breaker(probe_every=0.001), at(61) - 1)
    assert bucket.rate_u == 1_000_000 * TOKEN


def test_when_to_look_again() -> None:
    """At the next change that time alone makes, if it is ahead."""
    assert wakes_at(BreakerState(), BREAKER, T0) is None
    assert wakes_at(OPEN, BREAKER, at(1)) == at(30)
    assert wakes_at(OPEN, BREAKER, at(30)) is None
    assert wakes_at(replace(OPEN, manual=True), BREAKER, at(1)) is None
    assert wakes_at(HALF_OPEN, BREAKER, at(31)) is None
    assert wakes_at(CLOSING, BREAKER, at(32)) == at(61)
    assert wakes_at(replace(OPEN, held_until_us=at(20)), BREAKER, at(1)) == at(20)
    assert wakes_at(replace(OPEN, held_until_us=at(40)), BREAKER, at(1)) == at(30)


def test_a_claimed_job_may_have_to_go_back() -> None:
    """It was claimed when calls were still allowed, and has not started yet."""
    assert refusal(BreakerState(), T0, T0) == ""
    assert refusal(OPEN, at(-1), at(1)) == "that breaker is open: 10 of 10 calls failed within 60 s"
    assert refusal(HALF_OPEN, at(29), at(31)) == "that breaker is half open, and this job is not one of its probes"
    assert refusal(HALF_OPEN, at(30), at(31)) == ""
    assert refusal(CLOSING, at(29), at(32)) == ""
    state, _ = held(BreakerState(), 20 * SECOND_US, T0)
    assert refusal(state, T0, at(1)) == "that one is held: it asked to be left alone for 20 s"
    assert refusal(state, T0, at(20)) == ""


# -- Its text, and clocks ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", ["", "{", "[]", "null", '{"state":"ajar"}', '{"since_us":"now"}', '{"calls":[[1,2]]}', "[" * 5_000])
def test_a_text_that_is_no_state(body: str) -> None:
    """Is not guessed at."""
    assert read_state(body) is None


def test_a_text_of_another_version() -> None:
    """What is missing takes its default, what is unknown is left out."""
    assert read_state('{"state":"open","until_us":5,"colour":"red"}') == BreakerState(state="open", until_us=5)
    assert read_state("{}") == BreakerState()


def test_a_clock_that_went_back() -> None:
    """Nothing lasts until the clock has come to where it was: phases begin again, and the longest wait is the usual one."""
    state, turns = passed(OPEN, BREAKER, at(-61))
    assert turns == []
    assert (state.since_us, state.until_us) == (at(-61), at(-31))
    assert passed(OPEN, BREAKER, at(-60)) == (OPEN, [])
    probing, _ = after(HALF_OPEN, -3_600, ok=3)
    assert (probing.state, probing.since_us) == ("closing", at(-3_600))
    manual, _ = opened_by_hand(BreakerState(), T0, by="", reason="")
    assert passed(manual, BREAKER, at(-3_600))[0].until_us == 0
    ahead, _ = after(BreakerState(), 0, bad=9)
    assert after(ahead, -3_600, bad=1)[0].calls == (Slot(at(-3_600) - at(-3_600) % (6 * SECOND_US), 0, 1),)


# -- Any history ---------------------------------------------------------------------------------------------------------------

SPANS = st.floats(0, 900)
STEPS = st.tuples(
    st.sampled_from(["calls", "calls", "calls", "time", "hold", "open", "close"]), SPANS, st.integers(0, 20), st.integers(0, 20), SPANS
)
BREAKERS = st.builds(
    Breaker,
    failure_rate=st.floats(0.01, 1),
    min_calls=st.integers(1, 30),
    failures=st.none() | st.integers(1, 50),
    window=st.floats(1, 600),
    open_for=st.floats(0.1, 60),
    open_max=st.floats(60, 900),
    probes=st.integers(1, 10),
    probe_every=st.floats(0.01, 10),
    ramp=st.floats(0, 120),
)


@given(BREAKERS, st.lists(STEPS, max_size=40))
def test_any_history_leaves_a_sound_state(breaker: Breaker, steps: list[tuple[str, float, int, int, float]]) -> None:
    """It can be stored, never outstays its time, never opens for longer than it may, and allows what its phase says."""
    state, now_us = BreakerState(), T0
    for what, elapsed_s, ok, bad, back_s in steps:
        now_us += round(elapsed_s * SECOND_US)
        if what == "open":
            state, turns = opened_by_hand(state, now_us, by="op", reason="r")
        elif what == "close":
            state, turns = closed_by_hand(state, now_us, by="op", reason="r")
        elif what == "time":
            state, turns = passed(state, breaker, now_us)
        else:
            wait_us = round(back_s * SECOND_US) if what == "hold" else None
            calls = Calls(ok=ok, bad=bad, began_us=now_us - round(back_s * SECOND_US), retry_after_us=wait_us)
            state, turns = reported(state, breaker, calls, now_us)
        assert all(turn.why for turn in turns)
        assert read_state(write_state(state)) == state
        check_sound(state, breaker, now_us)


def check_sound(state: BreakerState, breaker: Breaker, now_us: int) -> None:
    """What holds of every state, once time has done its part."""
    state, _ = passed(state, breaker, now_us)
    assert state.since_us <= now_us
    assert len(state.calls) <= 22
    assert state.manual <= (state.state == "open")
    if state.state == "open" and not state.manual:
        assert now_us < state.until_us <= state.since_us + round(breaker.open_max * SECOND_US)
    if state.state == "closing":
        assert is_held(state, now_us) or now_us < max(state.since_us, state.held_until_us) + round(breaker.ramp * SECOND_US)
    buckets = limits("x", state, breaker, now_us)
    assert (buckets == ()) == (state.state == "closed" and not is_held(state, now_us))
    assert all((bucket.rate_u == 0) == (state.state == "open" or is_held(state, now_us)) for bucket in buckets)
    wakes_us = wakes_at(state, breaker, now_us)
    assert wakes_us is None or now_us < wakes_us <= now_us + 3_600 * SECOND_US


@given(BREAKERS, st.lists(STEPS, max_size=20))
def test_from_any_state_a_healthy_downstream_is_closed_again(breaker: Breaker, steps: list[tuple[str, float, int, int, float]]) -> None:
    """Whatever happened before: good calls alone lead back, within the longest opening and the ramp."""
    state, now_us = BreakerState(), T0
    for _, elapsed_s, ok, bad, back_s in steps:
        now_us += round(elapsed_s * SECOND_US)
        state, _ = reported(state, breaker, Calls(ok=ok, bad=bad, began_us=now_us - round(back_s * SECOND_US)), now_us)
    healed_us = now_us
    while state.state != "closed":
        now_us += SECOND_US
        state, _ = reported(state, breaker, Calls(ok=1, began_us=now_us - 1_000), now_us)
        assert now_us - healed_us <= (breaker.open_max + breaker.probes + breaker.ramp + 5) * SECOND_US
